// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/bounding_rule.hpp"
#include "vocabpipe/sample_graph.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// Options of select_samples(), with the names of the flags of `vocabpipe select run` and their
/// defaults, except that no `state` is saved unless one is given.
struct SelectSamplesOptions {
    std::optional<int64_t> size = {};       ///< samples to choose; this or `fraction`
    std::optional<Fraction> fraction = {};  ///< share of the samples to choose, rounded down
    int64_t alpha = 9;      ///< weight of utilities, 0 to 2^20; 9 and 1 are the paper's 0.9 and 0.1
    int64_t beta = 1;       ///< weight of similarities, which count against a choice; 0 to 2^20
    BoundingRule bounding;  ///< default exact: it decides nothing wrong
    /// Parts that greedy works on by themselves, one at a time on each rank. Default 1, which
    /// chooses best; more where no rank holds the edges of all undecided samples. Up to 2^32.
    int64_t partitions = 1;
    /// Rounds of greedy, each with other parts; one part needs only one. The paper's figures change
    /// little beyond 8. Up to 10^6.
    int64_t rounds = 8;
    /// Fewer parts in later rounds, none larger than in the first. Default: as many in all of them.
    bool adaptive = false;
    uint64_t seed = 1;  ///< of parts and coins
    /// Steps that bound the objective of every choice from above, up to 255. 8 came within 6 % of
    /// the best bound of its kind (docs/select-run.md); 0: no certificate.
    int64_t certificate_steps = 8;
    /// Bytes per rank. What does not fit goes to files in `scratch`, and a plan that still does not
    /// fit is refused before the work. Neither SampleUtilities in memory nor SampleSubset::own
    /// count. Default 0: not limited, all in memory.
    uint64_t memory = 0;
    /// File of the subset, for train_gpt --data-subset. An older subset is replaced, and no other
    /// file. Empty: none.
    std::string output = {};
    /// Folder to save to after every round and every minute, and to go on from; removed at the end.
    /// Default: nothing is saved.
    std::string state = {};
    /// Folder, on each host, of files without names. Empty: `state`, or else that of the
    /// environment variable TMPDIR, or else /tmp.
    std::string scratch = {};
    /// Called on every rank with a phase and its progress, total 0: unknown. Ranks that are threads
    /// call it at the same time. May be empty.
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
};

/// What is certain about a choice, in the units of utilities.
struct SubsetCertificate {
    /// No set of as many samples has a larger objective. None: the bound is beyond 64 bits.
    std::optional<double> bound = {};
    /// Chosen samples without which the objective would be larger, each by itself.
    int64_t lowering = 0;
};

/// A choice of samples; all but `own` is equal on every rank.
struct SampleSubset {
    int64_t size = 0;  ///< samples chosen, on all ranks
    /// Those among the samples that this rank owns, ascending: behind each other in the order of
    /// ranks they are the subset. Empty if SelectSamplesOptions::output has it.
    std::vector<int64_t> own = {};
    double objective = 0;  ///< f of the subset, in the units of utilities
    /// None without SelectSamplesOptions::certificate_steps.
    std::optional<SubsetCertificate> certificate = {};
};

/// Chooses samples that are useful and unlike each other: a set S of the size asked for with a
/// large
///
///     f(S) = alpha * sum of utilities in S - beta * sum of weights of edges inside S
///
/// by the method of "On Distributed Larger-Than-Memory Subset Selection With Pairwise Submodular
/// Functions" (arXiv 2402.16442): bounding decides samples for certain, greedy works on random
/// parts of the others in rounds. Sums are of integers, multiples of 2^-20, and chance is a hash,
/// so the subset is the same for any number of ranks (docs/data-selection.md).
///
/// Collective: every rank calls it with the same options and the same inputs, or those of its
/// host's part of the graph. All errors are an AgreedError on every rank: with ExitCode::usage for
/// an option out of its range, more samples than there are, an `output` that is one of the inputs
/// or a file of another kind, or a `state` of other options; input_file for a row or utility that
/// is not allowed, or inputs of different samples; out_of_memory where `memory` does not suffice;
/// failed for a file that cannot be written, or a `scratch` that is needed and missing.
[[nodiscard]] SampleSubset select_samples(Communicator& world, const SampleGraph& graph,
                                          const SampleUtilities& utilities,
                                          const SelectSamplesOptions& options);

}  // namespace vocabpipe
