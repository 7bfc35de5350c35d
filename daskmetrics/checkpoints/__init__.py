"""Where a model's checkpoints lie, how they come to this machine, and what they are.

=========== ==============================================================================================
`locations` where the checkpoints of a model are, and which of them are equal
`arrivals`  those of a suite that grows: which can be read, and whether more will come
`adapters`  what the configuration of a LoRA adapter says
`content`   which of a checkpoint's files decide its numbers, their digests, and whether they are complete
`hub`       branches and files of a hub repository; checkpoints that are here only while needed
`download`  the download of one checkpoint: only what is needed, resumed and checked
`rolling`   checkpoints on a disk that is smaller than the suite
`protocol`  how the texts of one checkpoint become vectors
`shipped`   what the folder of a model says about it
=========== ==============================================================================================
"""
