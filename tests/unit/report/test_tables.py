"""Tables: the right numbers in the right places, and a link to the file behind each run."""

from __future__ import annotations

from made_study import make_run, summary
from paceline.report import settings, tables
from paceline.report.read import load


def column(table, name: str) -> list[str]:
    index = [head for head, _ in table.heads].index(name)
    return [row[index].text for row in table.rows]


def test_every_row_is_as_long_as_the_head(study):
    makers = (tables.scaling, tables.fits, tables.phases, tables.targets, tables.memory, tables.cells)
    every = [table for maker in makers for table in maker(study)]
    every += [*settings.hyper_parameters(study), *settings.configuration(study), *settings.machine(study)]
    assert len(every) >= 10
    for table in every:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title


def test_scaling_table(study):
    strong, weak = tables.scaling(study)
    assert column(strong, "p") == ["1", "2", "4*", "8*"]
    assert column(strong, "runs") == ["3"] * 4
    assert column(strong, "speed-up")[0] == "1.00×"
    assert column(strong, "efficiency")[0] == "100 %"
    assert column(strong, "Karp–Flatt")[0] == "–"
    assert column(strong, "updates") == ["7,031"] * 4
    assert column(weak, "updates") == ["7,031", "3,515", "1,757", "878"]
    assert column(weak, "global batch") == ["128", "256", "512", "1,024"]


def test_fits_say_parameters_intervals_and_which_law_applies(study):
    strong, _ = tables.fits(study)
    assert column(strong, "law")[0] == "Amdahl's law"
    assert column(strong, "parameters (95 % interval)")[0].startswith("f = 0.")
    assert " to " in column(strong, "parameters (95 % interval)")[0]
    assert column(strong, "applies").count("yes") == 1


def test_targets_that_were_not_reached_say_so(study):
    strong, weak = tables.targets(study)
    assert [name for name, _ in weak.heads] == ["p", "to 95 %", "to 98 %"]
    assert column(weak, "to 98 %")[2:] == ["not reached", "not reached"]
    assert "not reached" not in column(weak, "to 95 %") + column(strong, "to 98 %")


def test_some_repeats_that_reached_a_target_are_counted(tmp_path):
    for seed, accuracy in ((0, 0.986), (1, 0.85), (2, 0.986)):  # reached after the fourth epoch, or never
        made = summary(f"s{seed}", "strong", 1, seed)
        made |= {"target": 0.9, "test_accuracy": accuracy, "epoch_seconds": [1.0] * 15}
        make_run(tmp_path / f"s{seed}", made)
    (table,) = tables.targets(load([tmp_path]))
    assert column(table, "to 90 %") == ["4.00 s (2 of 3)"]


def test_every_cell_is_listed_and_leads_to_its_file(study):
    (table,) = tables.cells(study)
    assert len(table.rows) == 26
    assert all(row[0].target.name == "summary.json" for row in table.rows[:24])
    assert [row[-1].text for row in table.rows[-2:]] == ["failed", "missing"]
    assert table.folded


def test_settings_that_change_with_p_are_given_for_each(study):
    (table,) = settings.hyper_parameters(study)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows["learning rate"] == ["0.05", "0.05"]
    assert rows["batch per rank"] == ["p=1: 128 · p=2: 64 · p=4: 32 · p=8: 16", "128"]
    assert rows["global batch"] == ["128", "p=1: 128 · p=2: 256 · p=4: 512 · p=8: 1024"]
    assert rows["seeds"] == ["0, 1, 2", "0, 1, 2"]


def test_every_option_lists_its_values(study):
    (table,) = settings.configuration(study)
    rows = {row[0].text: row[1].text for row in table.rows}
    assert rows["ranks"] == "1, 2, 4, 8"
    assert rows["allow_unverified"] == "yes"


def test_nested_options_are_flattened(tmp_path):
    made = summary("run", None, 1, 0) | {"config": {"optimizer": {"name": "sgd", "lr": 0.1}}}
    (table,) = settings.configuration(load([make_run(tmp_path / "run", made)]))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["optimizer.lr", "0.1"],
        ["optimizer.name", "sgd"],
    ]


def test_machine_and_versions(study):
    (table,) = settings.machine(study)
    rows = {row[0].text: row[1].text for row in table.rows}
    assert rows["torch"] == "2.13.0"
    assert rows["memory"] == "16.0 GB"
    assert rows["commit"] == "abc1234"


def test_a_notebook_shows_escaped_html():
    table = tables.Table("a < b", ["<c>", "#d"], [[tables.Cell("<script>"), tables.Cell("1")]])
    shown = table._repr_html_()
    assert "<script>" not in shown
    assert "a &lt; b" in shown
