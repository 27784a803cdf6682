// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/plan.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "src/bindings/plan_request.hpp"
#include "src/bindings/python/bindings.hpp"

namespace vocabpipe::bindings::python {

namespace {

using namespace nanobind::literals;

/// Plans on a thread of its own, so that this one can hear Ctrl-C: Python tells only the main one.
Plan made_plan(PlanOptions options) {
    std::atomic<bool> stop = false;
    options.stop = [&stop] { return stop.load(); };
    std::future<Plan> work = std::async(std::launch::async, [&options] {
        Plan plan = make_plan(options);
        plan.remedies = find_remedies(plan);
        return plan;
    });
    while (true) {
        {
            const nb::gil_scoped_release others_run;
            if (work.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) break;
        }
        if (PyErr_CheckSignals() == 0) continue;
        const nb::python_error interrupted;  // takes what the handler raised
        stop = true;
        work.wait();
        throw interrupted;
    }
    Plan plan = work.get();
    plan.options.stop = nullptr;
    return plan;
}

/// A column of numbers of every row.
template <typename Value, typename Of>
void add(nb::dict& table, const char* name, const Plan& plan, const Of& of) {
    std::vector<Value> values;
    values.reserve(plan.rows.size());
    for (const PlanRow& row : plan.rows) values.push_back(static_cast<Value>(of(row)));
    table[name] = column(values);
}

/// A column of texts of every row.
template <typename Of>
void add_texts(nb::dict& table, const char* name, const Plan& plan, const Of& of) {
    nb::list texts;
    for (const PlanRow& row : plan.rows) texts.append(nb::cast(std::string(of(row))));
    table[name] = texts;
}

nb::dict table_of(const Plan& plan) {
    using Row = const PlanRow&;
    nb::dict table;
    add_texts(table, "schedule", plan, [](Row row) { return row.candidate.schedule; });
    add_texts(table, "vocab_mode", plan,
              [](Row row) { return to_string(row.candidate.vocab_mode); });
    add_texts(table, "split", plan, [](Row row) { return to_string(row.candidate.split); });
    add_texts(table, "recompute", plan, [](Row row) { return to_string(row.candidate.recompute); });
    add<int32_t>(table, "chunks", plan, [](Row row) { return row.candidate.chunks; });
    add<int32_t>(table, "memory_limit", plan, [](Row row) { return row.candidate.memory_limit; });
    add<bool>(table, "overlap_pairs", plan, [](Row row) { return row.candidate.overlap_pairs; });
    add<int32_t>(table, "pipeline", plan, [](Row row) { return row.candidate.mesh.pipeline; });
    add<int32_t>(table, "data", plan, [](Row row) { return row.candidate.mesh.data; });
    add<int32_t>(table, "tensor", plan, [](Row row) { return row.candidate.mesh.tensor; });
    add<int32_t>(table, "context", plan, [](Row row) { return row.candidate.mesh.context; });
    add<int32_t>(table, "expert", plan, [](Row row) { return row.candidate.expert_groups(); });
    add<int32_t>(table, "expert_tensor", plan, [](Row row) { return row.candidate.expert_tensor; });
    add<int64_t>(table, "micro_batch_size", plan,
                 [](Row row) { return row.candidate.micro_batch_size; });
    add<int32_t>(table, "microbatches", plan, [](Row row) { return row.candidate.microbatches; });
    add<int64_t>(table, "step_ns", plan, [](Row row) { return row.step_ns; });
    add<double>(table, "tokens_per_second", plan, [](Row row) { return row.tokens_per_second; });
    add<double>(table, "mfu", plan, [](Row row) { return row.mfu; });
    add<double>(table, "bubble", plan, [](Row row) { return row.bubble; });
    add<int64_t>(table, "total_bytes", plan, [](Row row) { return row.worst.total(); });
    add<int64_t>(table, "spare_bytes", plan, [](Row row) { return row.spare_bytes; });
    add<bool>(table, "fits", plan, [](Row row) { return row.fits(); });
    return table;
}

}  // namespace

void bind_plans(nb::module_& module) {
    nb::class_<Plan>(module, "Plan", nb::dynamic_attr())
        .def("__len__", [](const Plan& plan) { return plan.rows.size(); })
        .def_prop_ro("complete", [](const Plan& plan) { return plan.search.complete; })
        .def("table", &table_of)
        .def(
            "text",
            [](const Plan& plan, int64_t rows) {
                return plan_text(plan, static_cast<size_t>(std::max<int64_t>(rows, 0)));
            },
            "rows"_a)
        .def("json", &plan_json)
        .def("page", &plan_html)
        .def(
            "command",
            [](const Plan& plan, int64_t row) {
                return train_command(plan.options, row_of(plan, row).candidate);
            },
            "row"_a);

    module.def("models", &known_models);
    module.def("gpus", &known_devices);
    module.def(
        "plan",
        [](const std::string& model, const std::string& gpu, const std::string& profile, int gpus,
           int64_t global_batch_size, int64_t seq_length, std::optional<int64_t> vocab_size,
           const std::vector<int>& tensor, const std::vector<int>& context,
           const std::vector<int>& pipeline, const std::vector<int>& data,
           const std::vector<int>& expert, const std::vector<int>& expert_tensor,
           const std::vector<int64_t>& micro_batch_size, const std::vector<std::string>& recompute,
           const std::vector<std::string>& schedules, const std::vector<std::string>& vocab_modes,
           const std::vector<int>& chunks, bool overlap_pairs, std::optional<double> memory_gib,
           double moe_imbalance, bool all_sizes, int best) {
            return made_plan(options_of({.model = model,
                                         .gpu = gpu,
                                         .profile = profile,
                                         .gpus = gpus,
                                         .global_batch_size = global_batch_size,
                                         .seq_length = seq_length,
                                         .vocab_size = vocab_size,
                                         .tensor = tensor,
                                         .context = context,
                                         .pipeline = pipeline,
                                         .data = data,
                                         .expert = expert,
                                         .expert_tensor = expert_tensor,
                                         .chunks = chunks,
                                         .micro_batch_size = micro_batch_size,
                                         .recompute = recompute,
                                         .schedules = schedules,
                                         .vocab_modes = vocab_modes,
                                         .overlap_pairs = overlap_pairs,
                                         .memory_gib = memory_gib,
                                         .moe_imbalance = moe_imbalance,
                                         .all_sizes = all_sizes,
                                         .best = best}));
        },
        "model"_a, "gpu"_a, "profile"_a, "gpus"_a, "global_batch_size"_a, "seq_length"_a,
        "vocab_size"_a.none(), "tensor"_a, "context"_a, "pipeline"_a, "data"_a, "expert"_a,
        "expert_tensor"_a, "micro_batch_size"_a, "recompute"_a, "schedules"_a, "vocab_modes"_a,
        "chunks"_a, "overlap_pairs"_a, "memory_gib"_a.none(), "moe_imbalance"_a, "all_sizes"_a,
        "best"_a);
}

}  // namespace vocabpipe::bindings::python
