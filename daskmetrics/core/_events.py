"""Names of the events by which those who work tell the live pages, which they do not know."""

CLUSTER = "daskmetrics-cluster"  #: a line about queue and machines: ``{"text": ...}``
TRAIN = "daskmetrics-train"  #: a rank's step: ``{"model", "rank", "step", "loss", "tokens_per_second"}``
