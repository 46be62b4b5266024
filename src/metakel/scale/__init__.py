"""Learning from more tasks than fit in memory, in one process or on a Dask cluster."""

from metakel.scale._scan import Scan, scan

__all__ = ["Scan", "scan"]
