"""Names of the Dask topics on which a cluster and the ranks of a training report to the live pages."""

CLUSTER = "daskmetrics-cluster"  #: a line about queue and machines: ``{"text": ...}``
TRAIN = "daskmetrics-train"  #: a rank's step: ``{"model", "rank", "step", "loss", "tokens_per_second"}``
