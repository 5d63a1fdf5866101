"""The mathematics: functions on arrays. Nothing here knows of estimators."""
