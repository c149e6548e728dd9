"""The dashboard: one page that a cluster admin leaves open, and one for each job."""

from starburst.web.dashboard.routes import dashboard

__all__ = ["dashboard"]
