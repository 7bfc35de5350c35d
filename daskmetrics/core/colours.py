"""The colours of figures, which can be distinguished without seeing all colours."""

#: of Okabe and Ito (2008)
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
