// SPDX-License-Identifier: Apache-2.0
// Where nothing fits: the nearest row, planned again with one option changed at a time.
#include "src/plan/candidates.hpp"
#include "src/plan/evaluate.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int kMostGpus = 1 << 14;  // as check_options()

/// Passes that are simulated: a second's work. Beyond that, pass times are within 5 % of it.
constexpr int64_t kPassesOfRemedies = 200'000;

/// Plans nothing but this candidate.
PlanOptions narrowed(const Plan& plan, const Candidate& to) {
    PlanOptions options = plan.options;
    options.schedules = {to.schedule};
    options.vocab_modes = {to.vocab_mode};
    options.chunks = {to.chunks};
    options.overlap_pairs = to.overlap_pairs;
    if (!hides_exchanges(to)) options.trainer.exchange_percent = 0;
    options.tensor = {to.mesh.tensor};
    options.context = {to.mesh.context};
    options.pipeline = {to.mesh.pipeline};
    options.data = {to.mesh.data};
    options.expert = {to.expert_groups()};
    options.expert_tensor = {to.expert_tensor};
    options.micro_batch_sizes = {to.micro_batch_size};
    options.recompute = {to.recompute};
    options.sensitivity_rows = 0;
    options.progress = {};
    return options;
}

std::string number(const char* flag, int64_t value) {
    return std::string(flag) + " " + std::to_string(value);
}

class Remedies {
public:
    explicit Remedies(const Plan& plan)
        : plan_(plan), nearest_(plan.rows.front()), base_(narrowed(plan, nearest_.candidate)) {}

    std::vector<Remedy> all() {
        recompute();
        smaller_microbatch();
        share_layers();
        const Mesh& mesh = nearest_.candidate.mesh;
        stage_ranks("--tensor-model-parallel-size", &PlanOptions::tensor, mesh.tensor);
        stage_ranks("--context-parallel-size", &PlanOptions::context, mesh.context);
        const Candidate& nearest = nearest_.candidate;
        expert_ranks("--expert-model-parallel-size", &PlanOptions::expert, nearest.expert_groups());
        expert_ranks("--expert-tensor-parallel-size", &PlanOptions::expert_tensor,
                     nearest.expert_tensor);
        more_gpus(base_, "");
        const auto fits = [](const Remedy& remedy) { return remedy.row.fits(); };
        if (std::ranges::none_of(found_, fits)) together();
        return std::move(found_);
    }

private:
    /// The best row of the options; none if they are impossible, or PlanOptions::stop came first.
    std::optional<PlanRow> best_row(PlanOptions options) const {
        const int64_t passes = count_passes(nearest_.candidate) * options.gpus / base_.gpus;
        options.evaluation =
            passes <= kPassesOfRemedies ? plan_.evaluation : Evaluation::pass_times;
        try {
            Plan plan = make_plan(options);
            if (plan.rows.empty()) return std::nullopt;
            return std::move(plan.rows.front());
        } catch (const UsageError&) {
            return std::nullopt;
        }
    }

    /// Keeps what needs less memory than the row without it; whether it fits.
    bool try_out(const std::string& flags, const PlanOptions& options) {
        std::optional<PlanRow> row = best_row(options);
        if (!row || row->spare_bytes <= nearest_.spare_bytes) return false;
        found_.push_back({flags, std::move(*row)});
        return found_.back().row.fits();
    }

    void recompute() {
        for (const Recompute more : {Recompute::selective, Recompute::full}) {
            if (more <= nearest_.candidate.recompute) continue;
            PlanOptions options = base_;
            options.recompute = {more};
            const bool fits =
                try_out("--recompute-granularity " + std::string(to_string(more)), options);
            if (fits) return;
        }
    }

    void smaller_microbatch() {
        if (nearest_.candidate.micro_batch_size == 1) return;
        PlanOptions options = base_;
        options.micro_batch_sizes = {1};
        (void)try_out(number("--micro-batch-size", 1), options);
    }

    /// Replicas that share weights of layers, with as many stages per rank as that takes.
    void share_layers() {
        const PlannedTrainer& trainer = plan_.options.trainer;
        if (plan_.options.pass_times || trainer.zero == 3) return;
        if (nearest_.candidate.mesh.size_of(Axis::data) == 1) return;
        PlanOptions options = base_;
        options.trainer.zero = 3;
        options.chunks.clear();
        options.layers_per_stage.clear();
        std::string flags = number("--zero-stage", 3);
        if (!generator(nearest_.candidate.schedule).any_chunks) {
            options.schedules = {"interleaved"};
            flags += " --schedules interleaved";
        }
        (void)try_out(flags, options);
    }

    /// Ranks that share a stage, doubled until they fit or cannot be: instead of replicas, else of
    /// ranks of the pipeline.
    void stage_ranks(const char* flag, std::vector<int> PlanOptions::*list, int now) {
        const Mesh& mesh = nearest_.candidate.mesh;
        for (int by = 2; by <= mesh.pipeline * mesh.data; by *= 2) {
            const bool of_data = mesh.data % by == 0;
            if (!of_data && mesh.pipeline % by != 0) return;
            PlanOptions options = base_;
            options.*list = {now * by};
            (of_data ? options.data
                     : options.pipeline) = {(of_data ? mesh.data : mesh.pipeline) / by};
            if (try_out(number(flag, now * by), options)) return;
        }
    }

    /// Ranks that share experts, doubled until they fit or are as many as there are.
    void expert_ranks(const char* flag, std::vector<int> PlanOptions::*list, int now) {
        const Mesh& mesh = nearest_.candidate.mesh;
        if (plan_.options.model.config.moe.experts == 0) return;
        for (int by = 2; mesh.expert * by <= mesh.slices(); by *= 2) {
            PlanOptions options = base_;
            options.*list = {now * by};
            if (try_out(number(flag, now * by), options)) return;
        }
    }

    /// A longer pipeline, doubled until it fits, has no layer for every stage, or needs no less.
    /// Only the last length is kept.
    void more_gpus(const PlanOptions& from, const std::string& with) {
        const int64_t stages = std::ssize(nearest_.candidate.layers_per_stage);
        std::optional<Remedy> longest;
        int64_t spare = nearest_.spare_bytes;
        PlanOptions options = from;
        for (int64_t by = 2; stages * by <= from.model.config.num_layers; by *= 2) {
            if (options.gpus > kMostGpus / 2) break;
            options.gpus *= 2;
            options.pipeline.front() *= 2;
            std::optional<PlanRow> row = best_row(options);
            if (!row || row->spare_bytes <= spare) break;
            spare = row->spare_bytes;
            longest = {with + number("--gpus", options.gpus), std::move(*row)};
            if (longest->row.fits()) break;
        }
        if (longest) found_.push_back(std::move(*longest));
    }

    void together() {
        PlanOptions options = base_;
        options.recompute = {Recompute::full};
        std::string flags = "--recompute-granularity full ";
        if (!plan_.options.profile && nearest_.candidate.micro_batch_size > 1) {
            options.micro_batch_sizes = {1};
            flags += "--micro-batch-size 1 ";
        }
        more_gpus(options, flags);
    }

    const Plan& plan_;
    const PlanRow& nearest_;
    const PlanOptions base_;
    std::vector<Remedy> found_;
};

}  // namespace

std::vector<Remedy> find_remedies(const Plan& plan) {
    if (plan.rows.empty() || plan.rows.front().fits()) return {};
    return Remedies(plan).all();
}

}  // namespace vocabpipe
