"""Where the data of a case comes from. Importing this package imports nothing.

    dataset.py    `Dataset`, and the input archive that the task process reads
    digits.py     1,797 real handwritten digits, shipped with the package
    mnist.py      draws from the MNIST training images, resized to 9x9
    synthetic.py  generated images of any size
    idx.py        the strict reader of MNIST's file format
    download.py   MNIST's files from a mirror, checked, cached

Every source yields the same bytes on every machine: random numbers come from PCG64, arithmetic is on
integers or elementwise in float32, in an order that the code fixes.
"""
