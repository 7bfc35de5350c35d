"""Where a model's checkpoints lie, how they come to this machine, and what they are.

| file | what it holds |
|---|---|
| `weights` | which files of a folder are read, and what the headers of its weights say |
| `folders` | what the folder of a model holds, and the digests of the files that decide its numbers |
| `hub` | what the hub says of a repository; requests that are made again |
| `locations` | where the checkpoints of a model are, and which of them are equal |
| `shipped` | how the texts of one checkpoint become vectors, by its folder and the configuration |
| `arrivals` | those of a suite that grows: which can be read, and whether more will come |
| `rolling` | checkpoints on a disk that is smaller than the suite |
"""
