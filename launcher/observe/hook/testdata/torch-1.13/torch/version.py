__version__ = "1.13.1+cu117"
cuda = "11.7"
hip = None
