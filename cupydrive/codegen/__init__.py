"""The text of a kernel: structs from a description, the unit that is compiled, and compilers'
messages in our words.

Imports descriptions of environments; knows of no executor.
"""
