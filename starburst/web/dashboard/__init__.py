"""The dashboard: an overview page and one page per job."""

from starburst.web.dashboard.routes import dashboard

__all__ = ["dashboard"]
