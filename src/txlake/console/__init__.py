"""The console: pages that show a lake's transactions, conflicts and tables, and a few forms that
act.

Pages are rendered from the lake's catalog and logs when they are opened; only logins are kept. No
Spark session is started.
"""
