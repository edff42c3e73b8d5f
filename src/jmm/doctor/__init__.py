"""Whether this machine, a model's files, and what the model computes are in order."""

from jmm.doctor.environment import environment
from jmm.doctor.examination import Examination, examine
from jmm.doctor.graph import Fault, Node, Peak
from jmm.doctor.run import Run
from jmm.doctor.weights import BadTensor

__all__ = [
    "BadTensor",
    "Examination",
    "Fault",
    "Node",
    "Peak",
    "Run",
    "environment",
    "examine",
]
