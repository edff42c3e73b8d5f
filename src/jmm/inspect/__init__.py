"""Pictures of what a model sees: heat maps of matches, and of differences between models."""

from jmm.inspect.compare import Comparison, PatchDistances, compare, patch_distances, resolutions
from jmm.inspect.drawing import SheetCell, SheetRow, contact_sheet
from jmm.inspect.heat import HeatMap, QueryToken, contributions, heatmap
from jmm.inspect.reference import Reference

__all__ = [
    "Comparison",
    "HeatMap",
    "PatchDistances",
    "QueryToken",
    "Reference",
    "SheetCell",
    "SheetRow",
    "compare",
    "contact_sheet",
    "contributions",
    "heatmap",
    "patch_distances",
    "resolutions",
]
