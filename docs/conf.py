"""The documentation as a site: pip install '.[docs]'; sphinx-build -W docs build/site."""

import jmm

project = "jmm"
author = "jmm contributors"
release = jmm.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"jmm {release}"
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
