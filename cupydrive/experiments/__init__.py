"""train(): one run, or a population of runs side by side; sweeps over settings; tournaments between
policies.
"""
