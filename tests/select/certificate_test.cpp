// SPDX-License-Identifier: Apache-2.0
// What is promised about a choice, against all choices of as many samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "src/select/selection.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {
namespace {

/// The largest f of 0, 1, 2, ... samples of a problem of few. The f of a set follows from that of
/// the set without its first sample.
std::vector<int64_t> optima_of(const SelectProblem& problem) {
    const auto n = static_cast<size_t>(problem.size());
    std::vector<std::vector<int64_t>> similarity(n, std::vector<int64_t>(n));
    for (const auto& [a, b, s] : problem.edges) {
        similarity[static_cast<size_t>(a)][static_cast<size_t>(b)] = s;
        similarity[static_cast<size_t>(b)][static_cast<size_t>(a)] = s;
    }
    std::vector<int64_t> value(size_t{1} << n);
    std::vector<int64_t> best(n + 1, std::numeric_limits<int64_t>::min());
    for (size_t set = 0; set < value.size(); ++set) {
        if (set > 0) {
            const auto first = static_cast<size_t>(std::countr_zero(set));
            const size_t rest = set & (set - 1);
            int64_t gain = problem.objective.alpha * problem.utility[first];
            for (size_t v = first + 1; v < n; ++v) {
                if ((rest >> v & 1) != 0) gain -= problem.objective.beta * similarity[first][v];
            }
            value[set] = value[rest] + gain;
        }
        int64_t& of_as_many = best[static_cast<size_t>(std::popcount(set))];
        of_as_many = std::max(of_as_many, value[set]);
    }
    return best;
}

/// alpha * utility, and the same less beta * all similarities, of every sample.
struct Bounds {
    std::vector<int64_t> most, least;
};
Bounds bounds_of(const SelectProblem& problem) {
    Bounds bounds;
    for (const int32_t u : problem.utility) bounds.most.push_back(problem.objective.alpha * u);
    bounds.least = bounds.most;
    for (const auto& [a, b, s] : problem.edges) {
        bounds.least[static_cast<size_t>(a)] -= problem.objective.beta * s;
        bounds.least[static_cast<size_t>(b)] -= problem.objective.beta * s;
    }
    return bounds;
}

/// The result of a selection.
struct Choice {
    std::vector<int64_t> set;
    int64_t objective = 0;
    Certificate certificate;
    BoundingReport bounding;
};

class Certificates : public ::testing::Test {
protected:
    void write(const SelectProblem& problem) const {
        World::threads(1).run(
            [&](Communicator& world) { write_graph(world, folder_ / "graph", problem); });
    }
    /// The choice for a problem whose edges were written.
    Choice choose(const SelectProblem& problem, const SelectionOptions& options, int ranks = 1,
                  uint64_t seed = 1) {
        Choice choice;
        World::threads(ranks).run([&](Communicator& world) {
            const GraphFile graph(folder_ / "graph");
            SelectContext context{.world = world,
                                  .graph = graph,
                                  .objective = problem.objective,
                                  .seed = seed,
                                  .batch_bytes = 64};
            const GraphSizes sizes = GraphSizes::of(context);
            const MemoryPlan plan = plan_memory(sizes, ranks, options.rounds.parts,
                                                options.bounding, context.batch_bytes);
            const auto utilities = [&](int64_t first, std::span<int32_t> to) {
                std::copy_n(problem.utility.begin() + first, to.size(), to.begin());
            };
            Selection selection(context, sizes, plan, utilities, options, nullptr);
            selection.run();
            EXPECT_LE(context.memory.peak(), plan.total());
            std::vector<int64_t> set = all_with(world, selection.state(), Decision::selected);
            const auto open = all_with(world, selection.state(), Decision::open);
            if (world.rank() != 0) return;
            set.insert(set.end(), open.begin(), open.end());
            std::ranges::sort(set);
            choice = {.set = set,
                      .objective = selection.objective(),
                      .certificate = *selection.certificate(),
                      .bounding = selection.progress().bounding};
        });
        return choice;
    }

    TempFolder folder_;
};

/// Few or many edges, weights that favour utilities or similarities, many ties or none.
SelectProblem small_problem(uint64_t seed) {
    const auto n = static_cast<int64_t>(3 + seed % 9);
    const int32_t most = seed % 3 == 0 ? 8 : 1 << 20;
    SelectProblem problem =
        random_problem(seed, n, static_cast<int64_t>(1 + seed / 9 % 4), most, most);
    constexpr std::array<PairwiseObjective, 5> kWeights{{{.alpha = 9, .beta = 1},
                                                         {.alpha = 1, .beta = 1},
                                                         {.alpha = 30, .beta = 1},
                                                         {.alpha = 1, .beta = 3},
                                                         {.alpha = 3, .beta = 1}}};
    problem.objective = kWeights[seed / 36 % kWeights.size()];
    return problem;
}

TEST_F(Certificates, HoldOnAThousandInstancesThatCanBeSearchedWhole) {
    int monotone = 0;
    int decided = 0;
    double least_share = 1;
    for (uint64_t seed = 0; seed < 1000; ++seed) {
        const SelectProblem problem = small_problem(seed);
        write(problem);
        const Bounds bounds = bounds_of(problem);
        const int64_t k = 1 + static_cast<int64_t>(seed * 7 / 3) % problem.size();
        const int64_t best = optima_of(problem)[static_cast<size_t>(k)];
        const auto what = [&](const char* rule) {
            return "seed " + std::to_string(seed) + ", k " + std::to_string(k) + ", " + rule;
        };
        for (const char* rule : {"exact", "bernoulli:0.3", "weighted:0.3"}) {
            const bool exact = std::string_view(rule) == "exact";
            const Choice choice = choose(problem,
                                         {.k = k,
                                          .bounding = BoundingRule::from(rule, "--bounding"),
                                          .certificate_steps = static_cast<int64_t>(1 + seed % 10)},
                                         1, seed);
            // The certificate holds whatever was chosen, and however.
            ASSERT_TRUE(choice.certificate.bound) << what(rule);
            EXPECT_GE(*choice.certificate.bound, best) << what(rule);
            EXPECT_LE(choice.objective, best) << what(rule);
            // The guarantees need samples that add to f beside all others.
            const int64_t least = std::ranges::min(bounds.least);
            if (least <= 0) continue;
            const auto mine = static_cast<double>(choice.objective);
            const auto most = static_cast<double>(best);
            if (exact) {
                ++monotone;
                EXPECT_GE(mine, (1 - std::exp(-1.0)) * most) << what(rule);
                least_share = std::min(least_share, mine / most);
            } else if (rule[0] == 'b') {  // theorem 4.6, p = 0.3
                double gamma = 1;
                for (size_t v = 0; v < bounds.most.size(); ++v) {
                    gamma = std::max(gamma, static_cast<double>(bounds.most[v]) /
                                                static_cast<double>(bounds.least[v]));
                }
                EXPECT_GE(mine, most / (2 * (1 + gamma * (1 - 0.09)))) << what(rule);
            }
            if (!exact || choice.bounding.open > choice.bounding.k_left) continue;
            ++decided;
            EXPECT_EQ(choice.objective, best) << what(rule);
            EXPECT_EQ(*choice.certificate.bound, best) << what(rule);
        }
    }
    // The instances are not all of one kind.
    EXPECT_GT(monotone, 200);
    EXPECT_GT(decided, 50);
    EXPECT_GT(least_share, 0.9) << "far better than promised, as the paper finds";
}

TEST_F(Certificates, BoundOtherChoicesThanTheBestFromAbove) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
        const SelectProblem problem = small_problem(seed);
        write(problem);
        const int64_t k = 1 + static_cast<int64_t>(seed) % problem.size();
        const int64_t best = optima_of(problem)[static_cast<size_t>(k)];
        // Parts of one or two samples choose badly.
        const Choice choice = choose(problem,
                                     {.k = k,
                                      .bounding = {.kind = BoundingRule::Kind::off},
                                      .rounds = {.parts = std::max<int64_t>(problem.size() / 2, 1)},
                                      .certificate_steps = 3},
                                     2, seed);
        EXPECT_GE(choice.certificate.bound.value(), best) << seed;
        EXPECT_GE(best, choice.objective) << seed;
    }
}

/// The bound from its definition: the mean of the answers as a list of numbers per edge.
int64_t bound_of(const SelectProblem& problem, const std::vector<int64_t>& choice, int64_t steps) {
    const auto n = static_cast<size_t>(problem.size());
    const auto k = std::ssize(choice);
    const auto best_of = [&](std::vector<int64_t> weights) {
        std::ranges::sort(weights, std::greater());
        weights.resize(static_cast<size_t>(k));
        return weights;
    };
    std::vector<int64_t> times(n);
    for (const int64_t v : choice) times[static_cast<size_t>(v)] = 1;
    std::vector<int64_t> answers(problem.edges.size());
    int64_t least = 0;
    for (const int64_t weight : best_of(bounds_of(problem).most)) least += weight;
    for (int64_t step = 1; step <= steps; ++step) {
        std::vector<int64_t> weights = bounds_of(problem).most;
        for (int64_t& weight : weights) weight *= step;
        int64_t bound = 0;
        for (size_t e = 0; e < answers.size(); ++e) {
            const auto& [a, b, s] = problem.edges[e];
            const auto v = static_cast<size_t>(a);
            const auto w = static_cast<size_t>(b);
            if (times[v] + times[w] > step) ++answers[e];
            const int64_t similar = problem.objective.beta * answers[e] * s;
            weights[v] -= similar;
            weights[w] -= similar;
            bound += similar;
        }
        const std::vector<int64_t> best = best_of(weights);
        for (const int64_t weight : best) bound += weight;
        least = std::min(least, bound >= 0 ? bound / step : -((-bound + step - 1) / step));
        for (size_t v = 0; v < n; ++v) times[v] += weights[v] >= best.back() ? 1 : 0;
    }
    return least;
}

TEST_F(Certificates, AreWhatTheirDefinitionSaysOnAnyNumberOfRanks) {
    for (const auto& [alpha, beta, k] : {std::array<int64_t, 3>{9, 1, 30},
                                         {1, 1, 150},
                                         {9, 1, 240},
                                         {0, 1, 60},
                                         {1, 0, 60},
                                         {1, 1, 300}}) {
        const SelectProblem problem =
            clustered_problem(5, 300, 3, 20, 6, {.alpha = alpha, .beta = beta});
        write(problem);
        for (const int64_t steps : {1, 2, 8}) {
            const SelectionOptions options{.k = k,
                                           .bounding = {.kind = BoundingRule::Kind::off},
                                           .rounds = {.parts = 3, .rounds = 2},
                                           .certificate_steps = steps};
            const Choice one = choose(problem, options);
            EXPECT_EQ(one.certificate.bound, bound_of(problem, one.set, steps));
            std::set<int64_t> chosen(one.set.begin(), one.set.end());
            int64_t lowering = 0;
            for (const int64_t v : one.set) {
                std::vector<int64_t> rest = one.set;
                std::erase(rest, v);
                lowering += problem.value(rest) > one.objective ? 1 : 0;
            }
            EXPECT_EQ(one.certificate.lowering, lowering);
            for (const int ranks : {2, 3, 7}) {
                const Choice other = choose(problem, options, ranks);
                EXPECT_EQ(other.certificate.bound, one.certificate.bound) << ranks;
                EXPECT_EQ(other.certificate.lowering, lowering) << ranks;
            }
        }
    }
}

TEST_F(Certificates, ComeCloserWithMoreStepsAndReachTheChoiceOfAllSamples) {
    const SelectProblem problem = clustered_problem(5, 300, 3, 20, 6, {.alpha = 9, .beta = 1});
    write(problem);
    int64_t before = std::numeric_limits<int64_t>::max();
    for (const int64_t steps : {1, 2, 4, 8, 255}) {
        const Choice choice = choose(problem, {.k = 150, .certificate_steps = steps});
        EXPECT_LT(*choice.certificate.bound, before) << steps;
        EXPECT_GE(*choice.certificate.bound, choice.objective);
        before = *choice.certificate.bound;
    }
    const Choice all = choose(problem, {.k = 300, .certificate_steps = 1});
    EXPECT_EQ(all.certificate.bound, all.objective);
    EXPECT_EQ(choose(problem, {.k = 0}).certificate.bound, 0);
}

// Weights are sums over all steps, so fewer steps are made where they would not fit in 64 bits.
TEST_F(Certificates, HoldForTheLargestWeights) {
    SelectProblem problem = random_problem(3, 10, 3, 1, 1);
    for (int32_t& u : problem.utility) u = std::numeric_limits<int32_t>::max() - u;
    for (auto& edge : problem.edges) edge[2] = std::numeric_limits<int32_t>::max() - edge[2];
    problem.objective = {.alpha = kMostObjectiveWeight, .beta = kMostObjectiveWeight};
    write(problem);
    for (const int64_t k : {1, 4, 9, 10}) {
        const Choice choice = choose(problem, {.k = k, .certificate_steps = 255});
        EXPECT_GE(choice.certificate.bound.value(), optima_of(problem)[static_cast<size_t>(k)]);
    }
}

TEST_F(Certificates, OfBoundingThatDecidesNothingNameTheAlphaThatWould) {
    int found = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        SelectProblem problem = random_problem(seed, 30, 4, 1 << 20, 1 << 20);
        problem.objective = {.alpha = 1, .beta = 2};
        write(problem);
        int64_t alpha_of_exact = kMostObjectiveWeight;
        for (const char* rule : {"exact", "bernoulli:0.6", "quota:0.6", "weighted:0.6"}) {
            const SelectionOptions options{.k = 12,
                                           .bounding = BoundingRule::from(rule, "--bounding")};
            const auto decided = [&](int64_t alpha) {
                SelectProblem other = problem;
                other.objective.alpha = alpha;
                const BoundingReport report = choose(other, options, 2).bounding;
                return report.selected + report.discarded > 0;
            };
            const BoundingReport report = choose(problem, options, 3).bounding;
            if (report.selected + report.discarded > 0) {
                EXPECT_EQ(report.deciding_alpha, std::nullopt);
                continue;
            }
            ASSERT_TRUE(report.deciding_alpha) << seed << rule;
            ASSERT_GT(*report.deciding_alpha, 1) << seed << rule;
            if (options.bounding.kind == BoundingRule::Kind::exact) {
                alpha_of_exact = *report.deciding_alpha;
            }
            EXPECT_LE(*report.deciding_alpha, alpha_of_exact) << seed << rule;
            EXPECT_TRUE(decided(*report.deciding_alpha)) << seed << rule;
            EXPECT_FALSE(decided(*report.deciding_alpha - 1)) << seed << rule;
            ++found;
        }
    }
    EXPECT_GT(found, 60);
    // Samples that are all alike.
    SelectProblem alike = random_problem(1, 30, 4, 0, 9);
    for (int32_t& u : alike.utility) u = 5;
    write(alike);
    EXPECT_EQ(choose(alike, {.k = 12}).bounding.deciding_alpha, 0);
    alike.objective.alpha = 0;
    EXPECT_EQ(choose(alike, {.k = 12}).bounding.deciding_alpha, std::nullopt);
}

}  // namespace
}  // namespace vocabpipe::testing
