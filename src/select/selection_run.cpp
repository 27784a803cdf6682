// SPDX-License-Identifier: Apache-2.0
#include "src/select/selection_run.hpp"

#include "src/select/disk/scratch_file.hpp"
#include "src/select/graph_parts.hpp"
#include "src/select/sample_graph.hpp"
#include "src/select/write_subset.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <span>
#include <string_view>

namespace vocabpipe {

namespace {

void check_range(std::string_view flag, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    throw UsageError(std::string(flag) + " " + std::to_string(value) + ": must be from " +
                     std::to_string(least) + " to " + std::to_string(most));
}

void check_fraction(std::string_view flag, const Fraction& fraction) {
    constexpr int64_t kMost = 1'000'000'000;
    int64_t power = 1;
    while (power < fraction.denominator && power < kMost) power *= 10;
    if (fraction.denominator == power && fraction.numerator >= 0 &&
        fraction.numerator <= fraction.denominator) {
        return;
    }
    throw UsageError(std::string(flag) + " " + std::to_string(fraction.numerator) + " / " +
                     std::to_string(fraction.denominator) +
                     ": must be from 0 to 1, with a power of ten up to 10^9 as denominator");
}

/// The ranges of the flags of `vocabpipe select run`.
void check_options(const SelectSamplesOptions& o) {
    if (o.fraction) check_fraction("--fraction", *o.fraction);
    check_fraction("--bounding", o.bounding.share);
    check_range("--alpha", o.alpha, 0, kMostObjectiveWeight);
    check_range("--beta", o.beta, 0, kMostObjectiveWeight);
    check_range("--partitions", o.partitions, 1, kMostPartitions);
    check_range("--rounds", o.rounds, 1, kMostRounds);
    check_range("--certificate-steps", o.certificate_steps, 0, kMostCertificateSteps);
}

void check_partitions(int64_t partitions, int64_t nodes) {
    if (partitions > std::max<int64_t>(nodes, 1)) {
        throw UsageError("--partitions " + std::to_string(partitions) + ": there are only " +
                         std::to_string(nodes) + " samples; use fewer");
    }
    if (nodes / partitions >= kMostPartNodes) {
        throw UsageError("--partitions " + std::to_string(partitions) +
                         ": a partition can have at most 2^32 samples; use at least " +
                         std::to_string(nodes / kMostPartNodes + 1));
    }
}

}  // namespace

void check_one_size(const SelectSamplesOptions& options) {
    if (options.fraction.has_value() == options.size.has_value()) {
        throw UsageError("--fraction or --subset-size: give one of them");
    }
}

int64_t subset_size_of(const SelectSamplesOptions& options, int64_t n) {
    check_one_size(options);
    if (const auto fraction = options.fraction) {
        return static_cast<int64_t>(WideSum{n} * fraction->numerator / fraction->denominator);
    }
    const int64_t size = *options.size;
    if (size < 0) {
        throw UsageError("--subset-size " + std::to_string(size) + ": must be at least 0");
    }
    if (size > n) {
        throw UsageError("--subset-size " + std::to_string(size) + ": there are only " +
                         std::to_string(n) + " samples; use at most as many");
    }
    return size;
}

std::map<std::string, std::string> deciding_flags(const SelectSamplesOptions& options,
                                                  int64_t size) {
    return {{"--subset-size", std::to_string(size)},
            {"--alpha", std::to_string(options.alpha)},
            {"--beta", std::to_string(options.beta)},
            {"--bounding", to_string(options.bounding)},
            {"--partitions", std::to_string(options.partitions)},
            {"--rounds", std::to_string(options.rounds)},
            {"--adaptive", options.adaptive ? "given" : "not given"},
            {"--seed", std::to_string(options.seed)}};
}

SelectionRun::SelectionRun(Communicator& world, const SampleGraph& graph,
                           const SampleUtilities& utilities, const SelectSamplesOptions& options)
    : options_(options), context_(open(world, graph.implementation().file, utilities)) {
    // Too much memory for even the best graph is reported before all rows are read.
    plan_for(GraphSizes::least(context_.graph.nodes(), entries_, world.size()));
    if (options.memory == 0 || plan_.total() <= options.memory) plan_for(GraphSizes::of(context_));
}

SelectContext SelectionRun::open(Communicator& world, const GraphFile& graph,
                                 const SampleUtilities& utilities) {
    world.agree([&] {
        check_options(options_);
        utility_ = utilities.implementation().open();
        Corpus::check_same(graph.corpus(), graph.path(), utility_->corpus(), utility_->path());
        size_ = subset_size_of(options_, graph.nodes());
        check_partitions(options_.partitions, graph.nodes());
    });
    const PartedGraph parted = owners_of_parts(world, graph);
    entries_ = parted.entries;
    if (parted.parts > 1) check_same_utilities(world, *utility_);
    return {.world = world,
            .graph = graph,
            .owners = parted.owners,
            .objective = {.alpha = options_.alpha, .beta = options_.beta},
            .seed = options_.seed,
            .memory = MemoryBudget(options_.memory),
            .progress = options_.progress};
}

void SelectionRun::plan_for(const GraphSizes& sizes) {
    const int ranks = context_.world.size();
    sizes_ = sizes;
    context_.blocks = plan_blocks(sizes, options_.memory, ranks, options_.partitions,
                                  options_.bounding, context_.batch_bytes);
    plan_ = plan_memory(sizes, ranks, options_.partitions, options_.bounding, context_.batch_bytes,
                        context_.blocks);
}

void SelectionRun::check_memory() const {
    check_memory_plan(plan_, options_.memory, sizes_, context_.world.size(), options_.partitions,
                      options_.bounding, context_.batch_bytes);
}

void SelectionRun::begin() {
    if (!options_.state.empty()) {
        folder_.emplace(context_.world, options_.state, deciding_flags(options_, size_),
                        options_.scratch);
    }
    context_.blocks.folder = !options_.scratch.empty() ? options_.scratch
                             : folder_                 ? folder_->path()
                                                       : temporary_folder();
    const SelectionOptions options{.k = size_,
                                   .bounding = options_.bounding,
                                   .rounds = {.parts = options_.partitions,
                                              .rounds = options_.rounds,
                                              .adaptive = options_.adaptive},
                                   .certificate_steps = options_.certificate_steps};
    const auto read = [this](int64_t first, std::span<int32_t> to) { utility_->read(first, to); };
    context_.agree([&] {
        selection_.emplace(context_, sizes_, plan_, read, options, folder_ ? &*folder_ : nullptr);
    });
}

std::vector<int64_t> SelectionRun::chosen() const {
    const SelectionState& state = selection_->state();
    std::vector<int64_t> chosen;
    chosen.reserve(
        static_cast<size_t>(state.count(Decision::selected) + state.count(Decision::open)));
    for (int64_t v = state.first(); v < state.last(); ++v) {
        if (state.is_in(v)) chosen.push_back(v);
    }
    return chosen;
}

SubsetInfo SelectionRun::subset_info() const {
    SubsetInfo info{.corpus = context_.graph.corpus(), .count = size_, .provenance = {}};
    // What the graph's file does not record about the samples, the utilities' file may.
    if (info.corpus.data.empty()) info.corpus.data = utility_->corpus().data;
    if (info.corpus.seq_length == 0) info.corpus.seq_length = utility_->corpus().seq_length;
    for (const auto& [flag, value] : deciding_flags(options_, size_)) {
        info.provenance["select." + flag.substr(2)] = value;
    }
    const SelectionProgress& progress = selection_->progress();
    info.provenance["select.graph"] = std::to_string(progress.graph);
    info.provenance["select.utility"] = std::to_string(progress.utility);
    info.provenance["select.objective"] = std::to_string(selection_->objective());
    info.provenance["utility.kind"] = utility_->kind();
    return info;
}

void SelectionRun::write() {
    write_subset(context_, selection_->state(), options_.output, subset_info());
}

void SelectionRun::end() {
    if (folder_) folder_->remove();
}

}  // namespace vocabpipe
