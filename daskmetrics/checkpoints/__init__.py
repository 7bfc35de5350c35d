"""Where a model's checkpoints lie, how they come to this machine, and what they are.

| file | what it holds |
|---|---|
| `layout` | network, modules and tokenizer in a folder; which of its files decide its numbers |
| `adapters` | a LoRA adapter in a folder |
| `checks` | whether the files of a folder are complete and fit each other; headers of its weights |
| `digests` | the digests of the files that decide, and the key of their content |
| `folders` | the model folders of a suite, and what each holds |
| `hub` | what the hub says of a repository; requests that are made again |
| `locations` | where the checkpoints of a model are, and which of them are equal |
| `shipped` | how the texts of one checkpoint become vectors, by its folder and the configuration |
| `arrivals` | those of a suite that grows: which can be read, and whether more will come |
| `rolling` | checkpoints on a disk that is smaller than the suite |
| `cache` | documents that are kept in the cache folder |
"""
