// SPDX-License-Identifier: Apache-2.0
#include "src/select/selection.hpp"

#include "src/select/graph_check.hpp"
#include "src/select/objective.hpp"
#include "src/select/partition.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kReportEvery = 65536;  // rows

}  // namespace

Selection::Selection(SelectContext& context, const GraphSizes& sizes, const MemoryPlan& plan,
                     ReadUtilities utilities, const SelectionOptions& options,
                     SelectionFolder* folder)
    : context_(context),
      sizes_(sizes),
      plan_(plan),
      utilities_(std::move(utilities)),
      options_(options),
      folder_(folder),
      buffers_(context.memory, plan.buffer_bytes, "buffers"),
      state_(context.memory, context.first(), context.last(), context.blocks) {}

void Selection::run(const std::function<void(const char* phase)>& done) {
    const auto ended = [&](const char* phase) {
        if (done) done(phase);
    };
    if (folder_ != nullptr) resumed_ = folder_->load(state_, progress_);
    messages_before_ = progress_.all_messages;
    bound(ended);
    ended("bounding");
    choose(ended);
    if (options_.certificate_steps > 0) {
        certify_choice();
        ended("certificate");
    }
    progress_.all_messages = messages_of_all();
}

/// Checks all rows, and initialises the state from them.
void Selection::read_graph(Bounding* bounding) {
    GraphCheck check;
    uint64_t utility = 0;
    context_.agree([&] {
        GraphRows rows(context_.graph);
        for_each_utility(state_, utilities_, [&](int64_t v, int32_t u) {
            utility += splitmix64(splitmix64(static_cast<uint64_t>(v)) ^ static_cast<uint32_t>(u));
            const GraphRow row = rows.at(v);
            check.add(row);
            if (bounding != nullptr) {
                state_.edit_u_max(v) = context_.objective.alpha * u;
                bounding->begin_row(row);
            }
            if (v % kReportEvery == 0) {
                context_.report("reading the graph", v - state_.first(), state_.size());
            }
        });
    });
    check.finish(context_.world, context_.graph, state_.first(), state_.last());
    std::vector<uint64_t> sums{utility};
    add_over_ranks(context_.world, sums);
    isolated_ = check.isolated();
    const auto same = [&](uint64_t before, uint64_t now, const char* flag) {
        if (!resumed_ || before == now) return;
        throw AgreedError(ExitCode::usage, "--state " + folder_->path() +
                                               ": was begun with another " + flag +
                                               "; give the same file, or remove the folder");
    };
    same(progress_.graph, check.fingerprint(), "--graph");
    same(progress_.utility, sums.front(), "--utility");
    progress_.graph = check.fingerprint();
    progress_.utility = sums.front();
}

void Selection::bound(const std::function<void(const char* phase)>& done) {
    if (progress_.bounded) {
        read_graph(nullptr);
        return;
    }
    std::optional<Bounding> bounding;
    context_.agree([&] {
        bounding.emplace(context_, state_, options_.bounding, options_.k, sizes_.own_entries,
                         sizes_.longest_row);
    });
    read_graph(&*bounding);
    if (!progress_.bounding.steps.empty()) bounding->go_on_from(progress_.bounding);
    progress_.bounding = bounding->run([&] {
        if (!should_save()) return;
        progress_.bounding = bounding->so_far();
        save();
        done("bounding");
    });
    bounding.reset();
    progress_.bounding_messages = messages_of_all();
    progress_.bounded_objective = objective_of(context_, state_, utilities_);
    progress_.bounded = true;
    save();
}

void Selection::choose(const std::function<void(const char* phase)>& done) {
    const int64_t begun = progress_.bounding.open;
    const int64_t count = progress_.bounding.k_left;
    int64_t open = progress_.rounds.empty() ? begun : progress_.rounds.back().kept;
    objective_ =
        progress_.rounds.empty() ? progress_.bounded_objective : progress_.rounds.back().objective;
    if (count > 0 && begun > count) {
        RoundOptions options = options_.rounds;
        if (options.parts == 1) options.rounds = 1;  // further rounds would choose the same
        std::optional<GreedyRounds> greedy;
        context_.agree([&] { greedy.emplace(context_, state_, plan_.edge_bytes); });
        for (auto round = std::ssize(progress_.rounds) + 1; round <= options.rounds; ++round) {
            RoundReport report = plan_round(options, round, begun, open, count);
            greedy->run(report, progress_.parts_done, [&](int64_t parts_done) {
                if (parts_done == report.parts || !should_save()) return;
                progress_.parts_done = parts_done;
                save();
                done("greedy");
            });
            progress_.parts_done = 0;
            open = report.kept;
            report.objective = objective_ = objective_of(context_, state_, utilities_);
            progress_.rounds.push_back(report);
            save();
            done("greedy");
        }
    }
    if (open > count) {  // more than `count`, as the parts' quotas are rounded up
        keep_at_random(context_, state_, count, open, options_.rounds.rounds + 1);
        objective_ = objective_of(context_, state_, utilities_);
        done("final choice");
    }
}

void Selection::certify_choice() {
    certificate_ = certify(context_, state_, options_.k, utilities_, options_.certificate_steps,
                           sizes_.longest_row);
    // Exact bounding decides as every best choice does: if it left nothing to decide, this is one.
    const BoundingReport& bounding = progress_.bounding;
    if (options_.bounding.kind == BoundingRule::Kind::exact && bounding.open == bounding.k_left) {
        certificate_->bound = objective_;
    }
}

void Selection::save() {
    progress_.all_messages = messages_of_all();
    if (folder_ != nullptr) folder_->save(state_, progress_);
    saved_ = std::chrono::steady_clock::now();
}

/// Whether rank 0 has not saved for long. Collective.
bool Selection::should_save() const {
    if (folder_ == nullptr) return false;
    const std::chrono::duration<double> ago = std::chrono::steady_clock::now() - saved_;
    const bool late = context_.world.rank() == 0 && ago.count() >= options_.save_seconds;
    return largest_over_ranks(context_.world, late ? 1 : 0) > 0;
}

MessageCount Selection::messages_of_all() const {
    const MessageCount& own = context_.messages;
    return {.messages = messages_before_.messages + sum_over_ranks(context_.world, own.messages),
            .sent = messages_before_.sent + sum_over_ranks(context_.world, own.sent),
            .bytes = messages_before_.bytes + sum_over_ranks(context_.world, own.bytes)};
}

}  // namespace vocabpipe
