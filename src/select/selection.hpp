// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/certificate.hpp"
#include "src/select/memory_plan.hpp"
#include "src/select/objective.hpp"
#include "src/select/saved_selection.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace vocabpipe {

/// Options of a selection.
struct SelectionOptions {
    int64_t k = 0;  ///< samples to choose
    BoundingRule bounding;
    RoundOptions rounds;
    /// Steps of the certificate. 8 came within 6 % of the best bound of its kind where 1 was off by
    /// up to 50 % (docs/select-run.md); 0: none.
    int64_t certificate_steps = 8;
    /// The state is saved in the middle of bounding and of rounds, too, if the last time was so
    /// long ago: a minute's work is seldom lost, and saving 9 bytes per sample takes far less.
    double save_seconds = 60;
};

/// Chooses k samples with a large objective: bounding, then greedy in parts, over several rounds
/// (arXiv 2402.16442). Each rank decides about the samples that it owns. No rank ever holds all
/// samples or all chosen ones, and the result is the same for any number of ranks.
class Selection {
public:
    /// `utilities` must be at least 0. `folder`: saves the state there after bounding and every
    /// round, and resumes from it; null: neither. Everything is collective.
    Selection(SelectContext& context, const GraphSizes& sizes, const MemoryPlan& plan,
              ReadUtilities utilities, const SelectionOptions& options, SelectionFolder* folder);

    /// Runs all phases and calls `done(phase)` after each, and when the state was saved in one;
    /// then state() is the result.
    void run(const std::function<void(const char* phase)>& done = {});

    [[nodiscard]] const SelectionState& state() const { return state_; }
    [[nodiscard]] const SelectionProgress& progress() const { return progress_; }
    [[nodiscard]] int64_t objective() const { return objective_; }
    /// How good the choice is; none without steps of it.
    [[nodiscard]] const std::optional<Certificate>& certificate() const { return certificate_; }
    [[nodiscard]] int64_t isolated() const { return isolated_; }  ///< samples without neighbours
    [[nodiscard]] bool resumed() const { return resumed_; }

private:
    void read_graph(Bounding* bounding);
    void bound(const std::function<void(const char* phase)>& done);
    void choose(const std::function<void(const char* phase)>& done);
    void certify_choice();
    void save();
    [[nodiscard]] bool should_save() const;
    [[nodiscard]] MessageCount messages_of_all() const;

    SelectContext& context_;
    const GraphSizes& sizes_;
    const MemoryPlan& plan_;
    ReadUtilities utilities_;
    SelectionOptions options_;
    SelectionFolder* folder_;
    MemoryLease buffers_;
    SelectionState state_;
    SelectionProgress progress_;
    MessageCount messages_before_;  ///< of the run that this one resumes
    int64_t objective_ = 0, isolated_ = 0;
    std::optional<Certificate> certificate_;
    bool resumed_ = false;
    std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
};

}  // namespace vocabpipe
