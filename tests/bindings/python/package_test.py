# SPDX-License-Identifier: Apache-2.0
"""What the package vocabpipe promises. VOCABPIPE_TOOL names the command line, whose answers are the right ones."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import vocabpipe

TOOL = os.environ["VOCABPIPE_TOOL"]
TIMEOUT_S = 120


def tool(*arguments):
    return subprocess.run([TOOL, *arguments], check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def lengths(table):
    return {len(values) for values in table.values()}


class Simulation(unittest.TestCase):
    def assert_as_the_tool(self, schedule, costs, step, *flags):
        expected = json.loads(tool("simulate", *flags, "--json"))
        self.assertEqual(expected["title"], step.title)
        self.assertEqual(expected["costs"], step.costs)
        self.assertAlmostEqual(expected["step"], step.step)
        self.assertAlmostEqual(expected["makespan"], step.makespan)
        self.assertEqual(expected["bubble"], step.bubble)
        table = step.rank_table()
        for key in ("busy", "span", "bubble", "peak_bytes"):
            np.testing.assert_allclose(table[key], [row[key] for row in expected["by_rank"]], rtol=1e-12)

    def test_every_family_and_vocabulary_mode_has_the_times_of_the_tool(self):
        for family in vocabpipe.families():
            for mode in ("none", "redistributed", "interlaced", "one_barrier", "two_barriers"):
                with self.subTest(family=family["name"], mode=mode):
                    costs = vocabpipe.Costs(12, 25, 5, latency=1, hop=2, num_layers=16)
                    made = vocabpipe.schedule(family["name"], 4, 12, vocab_mode=mode, costs=costs)
                    self.assert_as_the_tool(
                        made, costs, vocabpipe.simulate(made, costs), family["name"], "--pp", "4", "--microbatches",
                        "12", "--vocab-mode", mode, "--costs", "12,25,5", "--latency", "1", "--hop", "2",
                        "--num-layers", "16")

    def test_default_costs_sizes_and_recomputation_are_those_of_the_tool(self):
        for recompute in ("none", "selective", "full"):
            with self.subTest(recompute=recompute):
                costs = vocabpipe.Costs(hidden_size=2048, num_layers=24, seq_length=1024, micro_batch_size=2)
                made = vocabpipe.schedule("zb-h1", 3, 7, vocab_mode="one_barrier", vocab_size=64000,
                                          recompute=recompute, costs=costs)
                self.assert_as_the_tool(
                    made, costs, vocabpipe.simulate(made, costs, wait_for_reports=False), "zb-h1", "--pp", "3",
                    "--microbatches", "7", "--vocab-mode", "one_barrier", "--vocab-size", "64000",
                    "--recompute-granularity", recompute, "--hidden-size", "2048", "--num-layers", "24",
                    "--seq-length", "1024", "--micro-batch-size", "2", "--no-optimizer-barrier")

    def test_measured_pass_times_are_those_of_the_tools_file(self):
        times = {"rank": [0, 0, 1, 1, 0, 1], "op": ["F", "B", "F", "B", "S", "S"], "stage": [0, 0, 1, 1, -1, -1],
                 "ns": [100, 210, 110, 190, 30, 31]}
        costs = vocabpipe.Costs(pass_times=times)
        made = vocabpipe.schedule("1f1b", 2, 4, vocab_mode="one_barrier", vocab_size=64000, costs=costs)
        step = vocabpipe.simulate(made, costs)
        self.assertEqual("ns", step.unit)
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("rank,op,stage,ns\n0,F,0,100\n0,B,0,210\n1,F,1,110\n1,B,1,190\n0,S,-,30\n1,S,-,31\n")
            file.flush()
            expected = json.loads(tool("simulate", "1f1b", "--pp", "2", "--microbatches", "4", "--vocab-mode",
                                       "one_barrier", "--vocab-size", "64000", "--pass-times", file.name, "--json"))
        self.assertEqual(expected["step"], step.step)

    def test_tables_have_columns_of_one_length_and_add_up(self):
        step = vocabpipe.simulate(vocabpipe.schedule("v-half", 4, 8, vocab_mode="one_barrier"))
        for table in (step.span_table(), step.rank_table(), step.critical_path()):
            self.assertEqual(1, len(lengths(table)))
        spans = step.span_table()
        passes = np.array([lane == "compute" for lane in spans["lane"]])
        busy = np.bincount(spans["rank"][passes], (spans["end"] - spans["begin"])[passes])
        self.assertTrue((busy <= step.rank_table()["busy"] + 1e-6).all())
        self.assertGreater(busy.min(), 0)
        self.assertAlmostEqual(step.makespan, spans["end"].max() - spans["begin"].min())
        self.assertAlmostEqual(1, step.critical_path()["share"].sum())

    def test_a_written_trace_is_read_with_the_same_times_and_explained_as_the_tool_does(self):
        step = vocabpipe.simulate(vocabpipe.schedule("1f1b", 4, 6, vocab_mode="two_barriers"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            step.write_chrome_trace(path)
            read = vocabpipe.read_trace(path)
            self.assertAlmostEqual(step.bubble, read.bubble)
            said = tool("explain", path)
            for line in vocabpipe.explain(path).splitlines():
                self.assertIn(line.split(";")[0].strip()[:60], said)

    def test_explain_names_what_an_idle_rank_waited_for(self):
        step = vocabpipe.simulate(vocabpipe.schedule("1f1b", 2, 2), vocabpipe.Costs(10, 20))
        self.assertIn("rank 1 is idle before 1F0", step.explain(rank=1, at=5))
        with self.assertRaisesRegex(vocabpipe.UsageError, "at: requires a rank"):
            step.explain(at=5)
        with self.assertRaisesRegex(vocabpipe.UsageError, "must be within the step"):
            step.explain(rank=1, at=1e9)


class Schedules(unittest.TestCase):
    def test_passes_are_those_of_the_tool(self):
        made = vocabpipe.schedule("interleaved", 2, 4, chunks=3)
        self.assertEqual(tool("schedule", "show", "interleaved", "--pp", "2", "--microbatches", "4", "--chunks", "3",
                              "--format", "json"), vocabpipe.to_json(made))
        table = made.pass_table()
        self.assertEqual({2 * 2 * 3 * 4 + 4 * 4}, lengths(table))
        self.assertEqual("E", table["op"][0])
        self.assertEqual(-1, table["stage"][0])

    def test_files_give_the_same_passes(self):
        made = vocabpipe.schedule("zb-v", 2, 4)
        self.assertEqual(made.passes, vocabpipe.from_json(vocabpipe.to_json(made)).passes)
        for lowered in (False, True):
            read = vocabpipe.from_torch_csv(vocabpipe.to_torch_csv(made, lowered=lowered))
            stage_passes = [[p for p in of if p.stage is not None] for of in made.passes]
            self.assertEqual(stage_passes, read.passes)

    def test_a_schedule_of_a_generator_function_is_proved_and_gets_its_vocabulary(self):
        def one_forward_one_backward(rank, ranks, microbatches):
            ahead = min(ranks - rank, microbatches)
            yield from (("F", rank, j) for j in range(ahead))
            for j in range(microbatches):
                yield ("B", rank, j)
                if j + ahead < microbatches:
                    yield ("F", rank, j + ahead)

        base = vocabpipe.user_schedule([one_forward_one_backward(rank, 4, 8) for rank in range(4)], name="mine")
        builtin = vocabpipe.schedule("1f1b", 4, 8)
        self.assertEqual([[p for p in of if p.stage is not None] for of in builtin.passes], base.passes)
        vocabpipe.validate(base)
        made = vocabpipe.insert_vocabulary(base, "one_barrier", vocab_size=50304)
        self.assertEqual("mine one_barrier, 4 ranks, 8 microbatches", made.title)
        self.assertEqual(8, sum(p.op == "S" for p in made.passes[2]))
        self.assertLess(vocabpipe.simulate(made).bubble, 1)

    def test_a_schedule_that_cannot_run_is_refused_with_rank_position_and_pass(self):
        with self.assertRaisesRegex(vocabpipe.ScheduleError, r"rank 1.*1B0"):
            vocabpipe.user_schedule([[("F", 0, 0), ("B", 0, 0)], [("B", 1, 0), ("F", 1, 0)]])
        self.assertTrue(issubclass(vocabpipe.ScheduleError, vocabpipe.UsageError))
        self.assertTrue(issubclass(vocabpipe.UsageError, ValueError))

    def test_messages_name_arguments(self):
        for wrong, expected in (
            ({"ranks": 0}, "ranks 0: must be"),
            ({"chunks": 3}, "chunks 3: does not match"),
            ({"name": "1fb"}, "name 1fb: must be one of .*did you mean 1f1b"),
            ({"vocab_mode": "one"}, "vocab_mode one: must be one of"),
            ({"recompute": "some"}, "must be"),
        ):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(vocabpipe.UsageError, expected) as raised:
                vocabpipe.schedule(**({"name": "1f1b", "ranks": 4, "microbatches": 8} | wrong))
            self.assertNotIn("--", str(raised.exception))
            self.assertNotIn("::", str(raised.exception))
        with self.assertRaisesRegex(vocabpipe.UsageError, "give both"):
            vocabpipe.Costs(1)
        with self.assertRaisesRegex(vocabpipe.UsageError, "no column ns"):
            vocabpipe.Costs(pass_times={"rank": [0], "op": ["F"], "stage": [0]})
        with self.assertRaisesRegex(vocabpipe.InputFileError, "stage 1.*has no row for F"):
            vocabpipe.simulate(vocabpipe.schedule("1f1b", 2, 2),
                               vocabpipe.Costs(pass_times={"rank": [0, 0], "op": ["F", "B"], "stage": [0, 0],
                                                           "ns": [1, 2]}))
        with self.assertRaises(vocabpipe.UsageError):
            vocabpipe.to_torch_csv(vocabpipe.schedule("1f1b", 2, 2, vocab_mode="one_barrier"))


class Pictures(unittest.TestCase):
    def test_objects_draw_themselves_as_one_page(self):
        made = vocabpipe.schedule("1f1b", 2, 3)
        for drawn in (made, vocabpipe.simulate(made)):
            shown = drawn._repr_html_()
            self.assertTrue(shown.startswith("<iframe srcdoc=\"&lt;!"), shown[:40])
            self.assertEqual(1, shown.count("<iframe"))

    def test_files_are_those_that_the_tool_writes(self):
        costs = vocabpipe.Costs(10, 20)
        step = vocabpipe.simulate(vocabpipe.schedule("1f1b", 2, 3, costs=costs), costs)
        with tempfile.TemporaryDirectory() as folder:
            mine, theirs = os.path.join(folder, "mine.html"), os.path.join(folder, "theirs.html")
            vocabpipe.to_html(step, mine)
            tool("simulate", "1f1b", "--pp", "2", "--microbatches", "3", "--costs", "10,20", "--html", theirs)
            with open(mine, encoding="utf-8") as a, open(theirs, encoding="utf-8") as b:
                self.assertEqual(b.read(), a.read())
            picture = os.path.join(folder, "steps.svg")
            vocabpipe.to_svg([step, step], picture, "two steps", critical_path=True)
            with open(picture, encoding="utf-8") as file:
                self.assertIn("two steps", file.read())
            with self.assertRaises(vocabpipe.OutputFileError):
                vocabpipe.to_html(step, os.path.join(folder, "missing", "page.html"))


class Plans(unittest.TestCase):
    WORK = {"gpus": 8, "global_batch_size": 32, "seq_length": 2048, "schedules": ["1f1b", "v-half"],
            "pipeline": [4, 8], "best": 5}

    def test_rows_are_those_of_the_tool(self):
        made = vocabpipe.plan("llama-3-8b", "h100", **self.WORK)
        expected = json.loads(tool(
            "plan", "--model", "llama-3-8b", "--gpu", "h100", "--gpus", "8", "--global-batch-size", "32",
            "--seq-length", "2048", "--schedules", "1f1b,v-half", "--pipeline-model-parallel-size", "4,8", "--top", "5",
            "--json"))
        table = made.table()
        self.assertEqual({len(made)}, lengths(table))
        rows = expected["rows"]
        self.assertEqual([row["schedule"] for row in rows], table["schedule"])
        for key in ("step_ns", "tokens_per_second", "mfu", "bubble", "spare_bytes", "fits", "microbatches",
                    "overlap_pairs"):
            self.assertEqual([row[key] for row in rows], list(table[key]), key)
        self.assertEqual([row["worst_rank"]["total_bytes"] for row in rows], list(table["total_bytes"]))
        self.assertIn("mpirun -np 8", made.command(0))
        self.assertIn("llama-3-8b", made.text(3))
        self.assertTrue(made._repr_html_().startswith("<iframe"))

    def test_refusals_name_arguments(self):
        with self.assertRaisesRegex(vocabpipe.UsageError, "gpu: is required"):
            vocabpipe.plan("llama-3-8b", global_batch_size=8)
        with self.assertRaisesRegex(vocabpipe.UsageError, "did you mean"):
            vocabpipe.plan("lama-3-8b", "h100", global_batch_size=8, seq_length=128)

    def test_control_c_ends_a_long_plan(self):
        threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
        with self.assertRaises(KeyboardInterrupt):
            vocabpipe.plan("llama-3-70b", "h100", 512, global_batch_size=2048, seq_length=8192, all_sizes=True)


if __name__ == "__main__":
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
