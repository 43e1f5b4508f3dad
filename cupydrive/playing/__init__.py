"""Who acts and what comes of it: policies, players, rollouts, evaluations, recorded episodes.

Imports the simulator; knows nothing of how a policy is trained.
"""
