"""The console: pages that show what a lake knows of its transactions, and a few forms that act.

Pages are made here, of templates, by asking the lake's catalog and logs when they are opened;
nothing is kept but who has logged in. No Spark session is started.
"""
