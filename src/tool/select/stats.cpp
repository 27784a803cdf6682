// SPDX-License-Identifier: Apache-2.0
// vocabpipe select stats: degrees, utilities and similarities, before a selection.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/select/bounding.hpp"
#include "src/select/decimal.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/graph_check.hpp"
#include "src/select/memory_plan.hpp"
#include "src/select/objective.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/select/select_run.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

constexpr size_t kBins = 12;
constexpr size_t kBarColumns = 36;
constexpr int64_t kAtOnce = 4096;

/// Counts values per interval and prints them with bars.
class Histogram {
public:
    /// Bins of equal width from 0 to `most`, in whole numbers.
    explicit Histogram(int64_t most)
        : step_(std::max<int64_t>(most / static_cast<int64_t>(kBins) + 1, 1)) {}

    void add(int64_t value) {
        ++counts_[std::min(static_cast<size_t>(value / step_), kBins - 1)];
        sum_ += static_cast<double>(value);
        ++total_;
    }
    /// `unit`: the value that is printed as 1.
    void print(const char* title, double unit) const {
        const double mean = total_ == 0 ? 0 : sum_ / static_cast<double>(total_) / unit;
        std::printf("%s, mean %.4g\n", title, mean);
        const int64_t most = std::max<int64_t>(*std::ranges::max_element(counts_), 1);
        for (size_t i = 0; i < kBins; ++i) {
            const auto begin = static_cast<int64_t>(i) * step_;
            const std::string bar(
                static_cast<size_t>((counts_[i] * static_cast<int64_t>(kBarColumns) + most - 1) /
                                    most),
                '#');
            std::printf("  from %9.4g %12lld %6.2f %%%s\n", static_cast<double>(begin) / unit,
                        static_cast<long long>(counts_[i]),
                        total_ == 0
                            ? 0
                            : 100 * static_cast<double>(counts_[i]) / static_cast<double>(total_),
                        bar.empty() ? "" : (" " + bar).c_str());
        }
    }

private:
    int64_t step_;
    std::array<int64_t, kBins> counts_{};
    double sum_ = 0;
    int64_t total_ = 0;
};

ReadUtilities reader_of(UtilityInput& utility) {
    return [&utility](int64_t first, std::span<int32_t> to) { utility.read(first, to); };
}

void print_histograms(SelectContext& context, UtilityInput& utility, int64_t longest_row) {
    GraphRows rows(context.graph);
    const int64_t n = context.graph.nodes();
    int32_t most_similar = 0;
    for (int64_t v = 0; v < n; ++v) {
        for (const int32_t s : rows.at(v).similarities) most_similar = std::max(most_similar, s);
        if (v % kAtOnce == 0) context.report("similarities", v, n);
    }
    Histogram degrees(longest_row);
    Histogram similarities(most_similar);
    for (int64_t v = 0; v < n; ++v) {
        const GraphRow row = rows.at(v);
        degrees.add(std::ssize(row.neighbours));
        for (const int32_t s : row.similarities) similarities.add(s);
        if (v % kAtOnce == 0) context.report("histograms", v, n);
    }
    const ReadUtilities read = reader_of(utility);
    int32_t most_useful = 0;
    for_each_utility(0, utility.samples(), read,
                     [&](int64_t, int32_t u) { most_useful = std::max(most_useful, u); });
    Histogram utilities(most_useful);
    for_each_utility(0, utility.samples(), read, [&](int64_t, int32_t u) { utilities.add(u); });
    if (context.progress) context.progress("", 0, 0);
    degrees.print("neighbors of a sample", 1);
    utilities.print(("utility (" + utility.kind() + ")").c_str(), kFixedPointOne);
    similarities.print("similarity of neighbors", kFixedPointOne);
}

/// What would make bounding decide, if it has decided nothing.
std::string deciding_text(const BoundingReport& report) {
    if (!report.deciding_alpha) return {};
    return *report.deciding_alpha > 0
               ? "; it begins to decide at --alpha " + std::to_string(*report.deciding_alpha)
               : "; no larger --alpha changes that";
}

void print_bounding(SelectContext& context, UtilityInput& utility, const GraphSizes& sizes,
                    int64_t k) {
    const int64_t n = context.graph.nodes();
    SelectionState state(context.memory, 0, n);
    for_each_utility(state, reader_of(utility), [&](int64_t v, int32_t u) {
        state.edit_u_max(v) = context.objective.alpha * u;
    });
    Bounding bounding(context, state, {.kind = BoundingRule::Kind::exact}, k, sizes.own_entries,
                      sizes.longest_row);
    GraphRows rows(context.graph);
    for (int64_t v = 0; v < n; ++v) bounding.begin_row(rows.at(v));
    const BoundingReport report = bounding.run();
    if (context.progress) context.progress("", 0, 0);
    std::printf("%s\n",
                wrap_text("to choose " + std::to_string(k) + ": exact bounding selects " +
                              std::to_string(report.selected) + " and discards " +
                              std::to_string(report.discarded) + " in " +
                              counted(std::ssize(report.steps), "step") + "; " +
                              std::to_string(report.k_left) + " are to be chosen from the other " +
                              std::to_string(report.open) + deciding_text(report),
                          4)
                    .c_str());
}

void select_stats(const SelectRunArguments& o) {
    World world = World::threads(1);
    world.run([&](Communicator& communicator) {
        const GraphFile graph(o.graph);
        const std::unique_ptr<UtilityInput> utility = open_utility(o.utility);
        Corpus::check_same(graph.corpus(), o.graph, utility->corpus(), o.utility);
        PhaseProgress progress(true);
        SelectContext context{.world = communicator,
                              .graph = graph,
                              .objective = {.alpha = o.options.alpha, .beta = o.options.beta},
                              .progress = [&](const char* phase, int64_t done, int64_t total) {
                                  if (*phase == '\0') return progress.clear();
                                  progress.show(phase, done, total);
                              }};
        const GraphSizes sizes = GraphSizes::of(context);
        const GraphCheck check = check_graph(communicator, graph);
        std::printf(
            "%s, %s, %lld without neighbors, longest row %lld\n",
            counted(graph.nodes(), "sample").c_str(), counted(graph.entries() / 2, "edge").c_str(),
            static_cast<long long>(check.isolated()), static_cast<long long>(sizes.longest_row));
        print_histograms(context, *utility, sizes.longest_row);
        if (o.options.fraction || o.options.size) {
            print_bounding(context, *utility, sizes, subset_size_of(o.options, graph.nodes()));
        }
    });
}

}  // namespace

Command select_stats_command() {
    const auto o = std::make_shared<SelectRunArguments>();
    return {.name = "stats",
            .description = "Show degrees, utilities and similarities before one chooses",
            .flags = {{.flags = {graph_flag(*o), utility_flag(*o), fraction_flag(*o),
                                 subset_size_flag(*o), alpha_flag(*o), beta_flag(*o)}}},
            .run = [o](const GivenFlags&) { select_stats(*o); }};
}

}  // namespace vocabpipe::tool
