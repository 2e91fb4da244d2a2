"""Measure the detector: faults of many kinds in real training, and a score against the journaled truth.

``plan`` says what is tried, ``trial`` and ``worker`` train (torch), ``truth`` is what the ranks saw by means of their
own, ``reach`` says which check must see a trial and by when, ``score`` holds a run's record against both.
"""
