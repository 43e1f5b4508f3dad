"""What comes from outside: arguments, descriptions of environments, files and their formats; all
checked here.

Imports errors alone.
"""
