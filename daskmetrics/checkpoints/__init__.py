"""Where a model's checkpoints lie, how they come to this machine, and what they are.

================ ==================================================================
`locations`      where the checkpoints of a model are, and which of them are equal
`arrivals`       those of a suite that grows: which can be read, and whether more will come
`_complete`      which checkpoints of a trainer are complete
`adapters`       what the configuration of a LoRA adapter says
`content`        digests of a checkpoint's files, and a sample of its weights
`_order`         steps whose weights lie out of order
`hub`            branches and files of a hub repository; checkpoints that are here only while needed
`download`       the download of one checkpoint: only what is needed, resumed and checked
`rolling`        checkpoints on a disk that is smaller than the suite
`protocol`       how the texts of one checkpoint become vectors
`shipped`        what the folder of a model says about it
================ ==================================================================
"""
