"""Put dashboards, alert rules and annotations into a Grafana that is already there: ``lastgood grafana deploy``.

``wanted`` says what should be there, ``found`` reads what is there, ``plan`` compares the two without doing anything,
``send`` does it. ``grafana`` is the only module that talks to the server.
"""
