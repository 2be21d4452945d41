"""The operator library: importing it fills the registry of `anydim.graph.operator`."""

from anydim.graph.operator import register
from anydim.ops.library import scan
from anydim.ops.records import RECORDS
from anydim.ops.routines import ROUTINES

for _record in (*scan(), *RECORDS, *ROUTINES):
    register(_record)
