__version__ = "2.5.1+cpu"
cuda = None
hip = None
