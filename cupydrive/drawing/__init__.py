"""Pictures of states: shapes and charts on a canvas, frames of several episodes; learning curves as
figures.
"""
