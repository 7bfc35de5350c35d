"""Where a model's checkpoints lie, how they come to this machine, and what they are.

===========
==============================================================================================
`locations` where the checkpoints of a model are, and which of them are equal `folders`   what the
folder of a model holds: which files decide its numbers, whether they are complete `content`
digests of these files `shipped`   how the texts of one checkpoint become vectors, by its folder and
the configuration `arrivals`  those of a suite that grows: which can be read, and whether more will
come `hub`       branches and files of a hub repository; requests that are made again
`rolling`   checkpoints on a disk that is smaller than the suite
===========
==============================================================================================
"""
