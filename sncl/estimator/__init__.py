"""scikit-learn estimators: classifiers that go on learning with ``partial_fit``."""

from sncl.estimator.classifier import ContinualClassifier, SNCLClassifier

__all__ = ["ContinualClassifier", "SNCLClassifier"]
