"""`./dev demo`: a shop, a node, a pipeline, two crashes, and the proof that nothing was lost.

The story is a list of acts (acts/__init__.py); an act is a module with a TITLE and `play(stage)`. What they share is
the stage (stage.py): the folder, the processes, the story that is printed, and the facts that are known for certain.
"""
