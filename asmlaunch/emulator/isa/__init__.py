"""What every instruction means: the table (``table.find``) and the language it is written in (``language``)."""
