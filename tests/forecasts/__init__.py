"""Tests of axil.forecasts; they need mlforecast and skforecast."""
