"""unmask on a Ray cluster. Needs `pip install unmask[ray]`; the model must be readable on every node.

unmask.ray.data.Predictor   answers the rows of a ray.data.Dataset
unmask.ray.serve.app        an application of Ray Serve
"""
