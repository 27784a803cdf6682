// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "src/bindings/described_schedule.hpp"
#include "src/bindings/python/bindings.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/validate.hpp"

namespace vocabpipe::bindings::python {

namespace {

using namespace nanobind::literals;

/// A pass as Python writes it: op, stage, microbatch, with_next.
using PassTuple = std::tuple<std::string, int, int64_t, bool>;

int64_t within(const char* what, int64_t value, int64_t most) {
    if (value >= 0 && value <= most) return value;
    throw UsageError(std::string(what) + " " + std::to_string(value) +
                     ": must be an integer from 0 to " + std::to_string(most));
}

std::vector<std::vector<Pass>> passes_of(const std::vector<std::vector<PassTuple>>& lists) {
    std::vector<std::vector<Pass>> passes;
    for (const std::vector<PassTuple>& list : lists) {
        passes.emplace_back();
        for (const auto& [op, stage, microbatch, with_next] : list) {
            passes.back().push_back(
                {.op = op_from(op),
                 .stage = static_cast<uint16_t>(within("stage", stage, UINT16_MAX)),
                 .microbatch = static_cast<uint32_t>(within("microbatch", microbatch, INT32_MAX)),
                 .with_next = with_next});
        }
    }
    return passes;
}

/// op, stage and microbatch of every pass, with its rank and position: columns of one length.
nb::dict pass_table(const DescribedSchedule& described) {
    std::vector<int32_t> rank;
    std::vector<int32_t> position;
    std::vector<int32_t> stage;
    std::vector<int64_t> microbatch;
    nb::list op;
    for (size_t of = 0; of < described.schedule.passes.size(); ++of) {
        const std::vector<Pass>& list = described.schedule.passes[of];
        for (size_t at = 0; at < list.size(); ++at) {
            rank.push_back(static_cast<int32_t>(of));
            position.push_back(static_cast<int32_t>(at));
            op.append(nb::str(traits(list[at].op).name.data()));
            stage.push_back(traits(list[at].op).has_stage ? list[at].stage : -1);
            microbatch.push_back(list[at].microbatch);
        }
    }
    nb::dict table;
    table["rank"] = column(rank);
    table["position"] = column(position);
    table["op"] = op;
    table["stage"] = column(stage);
    table["microbatch"] = column(microbatch);
    return table;
}

nb::dict described_family(const Generator& family) {
    constexpr const char* kPlacements[] = {"straight", "loop", "v_shape"};
    nb::dict row;
    row["name"] = nb::str(family.name.data(), family.name.size());
    row["summary"] = nb::str(family.summary.data(), family.summary.size());
    row["placement"] = kPlacements[static_cast<size_t>(family.placement)];
    row["chunks"] = family.chunks;
    row["any_chunks"] = family.any_chunks;
    row["splits_backward"] = family.splits_backward;
    return row;
}

}  // namespace

void bind_schedules(nb::module_& module) {
    nb::class_<Pass>(module, "Pass")
        .def_prop_ro("op", [](const Pass& pass) { return std::string(traits(pass.op).name); })
        .def_prop_ro("stage",
                     [](const Pass& pass) -> std::optional<int> {
                         if (!traits(pass.op).has_stage) return std::nullopt;
                         return pass.stage;
                     })
        .def_ro("microbatch", &Pass::microbatch)
        .def_ro("with_next", &Pass::with_next)
        .def("__repr__", [](const Pass& pass) { return to_string(pass); })
        .def("__eq__", [](const Pass& a, const Pass& b) { return a == b; })
        .def("__hash__", [](const Pass& pass) {
            return std::hash<std::string>{}(to_string(pass) + (pass.with_next ? "+" : ""));
        });

    nb::class_<Violation>(module, "Violation")
        .def_ro("rank", &Violation::rank)
        .def_ro("index", &Violation::index)
        .def_ro("pass_name", &Violation::pass)
        .def_ro("reason", &Violation::reason)
        .def("__str__", &Violation::message);

    nb::class_<Costs>(module, "Costs")
        .def(
            "__init__",
            [](Costs* made, const std::string& figures, const std::string& pass_times,
               int64_t latency, int64_t hop, int num_layers, int64_t hidden_size,
               int64_t seq_length, int64_t micro_batch_size) {
                new (made) Costs{.figures = {.costs = figures,
                                             .latency = latency,
                                             .hop = hop,
                                             .num_layers = num_layers,
                                             .hidden_size = hidden_size,
                                             .seq_length = seq_length,
                                             .micro_batch_size = micro_batch_size},
                                 .pass_times = pass_times};
            },
            "figures"_a, "pass_times"_a, "latency"_a, "hop"_a, "num_layers"_a, "hidden_size"_a,
            "seq_length"_a, "micro_batch_size"_a);

    nb::class_<DescribedSchedule>(module, "Schedule", nb::dynamic_attr())
        .def_ro("name", &DescribedSchedule::name)
        .def_prop_ro("title", &DescribedSchedule::title)
        .def_prop_ro(
            "vocab_mode",
            [](const DescribedSchedule& of) { return std::string(to_string(of.vocab_mode)); })
        .def_prop_ro(
            "recompute",
            [](const DescribedSchedule& of) { return std::string(to_string(of.recompute)); })
        .def_prop_ro("ranks", [](const DescribedSchedule& of) { return of.schedule.ranks; })
        .def_prop_ro("stages", [](const DescribedSchedule& of) { return of.schedule.stages; })
        .def_prop_ro("microbatches",
                     [](const DescribedSchedule& of) { return of.schedule.microbatches; })
        .def_prop_ro("vocab_size",
                     [](const DescribedSchedule& of) { return of.schedule.output.vocab_size(); })
        .def_prop_ro("rank_of_stage",
                     [](const DescribedSchedule& of) { return of.schedule.rank_of_stage; })
        .def_prop_ro("passes", [](const DescribedSchedule& of) { return of.schedule.passes; })
        .def("pass_table", &pass_table)
        .def("peak_activations",
             [](const DescribedSchedule& of) { return peak_chunks(of.schedule); })
        .def("violation", [](const DescribedSchedule& of) { return find_violation(of.schedule); })
        .def("text", &printed_schedule, "format"_a)
        .def("__repr__",
             [](const DescribedSchedule& of) { return "<vocabpipe.Schedule " + of.title() + ">"; });

    module.def("families", [] {
        nb::list rows;
        for (const Generator& family : generators()) rows.append(described_family(family));
        return rows;
    });
    module.def(
        "schedule",
        [](const std::string& name, int ranks, int microbatches, const std::string& vocab_mode,
           int64_t vocab_size, int chunks, int warm_up_depth, int group_size, int memory_limit,
           int64_t broadcast_margin, int64_t search_moves, bool overlap_pairs,
           const std::string& recompute, bool forward_only, const Costs& costs) {
            const nb::gil_scoped_release others_run;
            return made_schedule(name,
                                 {.ranks = ranks,
                                  .microbatches = microbatches,
                                  .vocab_mode = vocab_mode_from(vocab_mode),
                                  .vocab_size = vocab_size,
                                  .rule = {.chunks = chunks,
                                           .warm_up_depth = warm_up_depth,
                                           .group_size = group_size,
                                           .memory_limit = memory_limit,
                                           .broadcast_margin = broadcast_margin,
                                           .search_moves = search_moves,
                                           .overlap_pairs = overlap_pairs},
                                  .forward_only = forward_only},
                                 recompute_from(recompute), costs);
        },
        "name"_a, "ranks"_a, "microbatches"_a, "vocab_mode"_a, "vocab_size"_a, "chunks"_a,
        "warm_up_depth"_a, "group_size"_a, "memory_limit"_a, "broadcast_margin"_a, "search_moves"_a,
        "overlap_pairs"_a, "recompute"_a, "forward_only"_a, "costs"_a);
    module.def(
        "user_schedule",
        [](const std::vector<std::vector<PassTuple>>& lists, const std::string& name,
           int64_t vocab_size, const std::string& barriers) {
            return listed_schedule(passes_of(lists), name, vocab_size, barriers);
        },
        "passes"_a, "name"_a, "vocab_size"_a, "barriers"_a);
    module.def(
        "insert_vocabulary",
        [](const DescribedSchedule& base, const std::string& vocab_mode, int64_t vocab_size,
           int64_t search_moves, const Costs& costs) {
            const nb::gil_scoped_release others_run;
            return with_vocabulary(base, vocab_mode_from(vocab_mode), vocab_size, search_moves,
                                   costs);
        },
        "base"_a, "vocab_mode"_a, "vocab_size"_a, "search_moves"_a, "costs"_a);
    module.def("parse_schedule", &parsed_schedule, "text"_a, "name"_a, "format"_a);
}

}  // namespace vocabpipe::bindings::python
