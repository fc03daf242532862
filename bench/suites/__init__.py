"""What the works do. Each function is one repeat of a work: it gives the value that is measured,
seconds unless the registry says otherwise, and checks the answer outside the measured part.
"""
