"""One made study for all tests of the report; nobody may write into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_study import make_study
from paceline.report.measured import StudyData
from paceline.report.read import load


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study") / "scaling")


@pytest.fixture(scope="session")
def study(study_folder: Path) -> StudyData:
    return load([study_folder])
