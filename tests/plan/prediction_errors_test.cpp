// SPDX-License-Identifier: Apache-2.0
// Errors of a group of predictions.
#include "benchmarks/prediction_errors.hpp"

#include "benchmarks/csv_rows.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace vocabpipe::testing {
namespace {

TEST(PredictionErrors, AreOfRunsThatRan) {
    const PredictionErrors errors = errors_of({{.predicted = 0.9, .measured = 1},
                                               {.predicted = 1.2, .measured = 1},
                                               {.predicted = 2.2, .measured = 2},
                                               {.predicted = 9, .measured = 0, .fits = false}});
    EXPECT_EQ(errors.rows, 3);
    EXPECT_NEAR(errors.median, 1.1, 1e-12);
    EXPECT_NEAR(errors.error, 0.1, 1e-12);
    EXPECT_NEAR(errors.p10, 0.94, 1e-12);
    EXPECT_NEAR(errors.p90, 1.18, 1e-12);
    EXPECT_EQ(errors.cells, 0);
}

TEST(PredictionErrors, FindsWhatRanOutOfMemory) {
    const PredictionErrors errors = errors_of({{.measured = 0, .fits = false},
                                               {.measured = 0, .fits = false},
                                               {.measured = 0, .fits = true},
                                               {.predicted = 1, .measured = 1, .fits = false},
                                               {.predicted = 1, .measured = 1, .fits = true}});
    EXPECT_NEAR(errors.recall(), 2.0 / 3, 1e-12);
    EXPECT_NEAR(errors.precision(), 2.0 / 3, 1e-12);
    EXPECT_EQ(errors_of({}).recall(), 1);
    EXPECT_EQ(errors_of({}).precision(), 1);
}

/// Rows of one cell: predicted and measured times.
std::vector<Prediction> cell(const std::vector<std::pair<double, double>>& times) {
    std::vector<Prediction> rows;
    for (const auto& [predicted, measured] : times) {
        rows.push_back({.cell = "a", .predicted = predicted, .measured = measured});
    }
    return rows;
}

TEST(PredictionErrors, CompareRanksWithinACell) {
    EXPECT_NEAR(errors_of(cell({{1, 10}, {2, 20}, {3, 30}, {4, 40}})).correlation, 1, 1e-12);
    EXPECT_NEAR(errors_of(cell({{4, 10}, {3, 20}, {2, 30}, {1, 40}})).correlation, -1, 1e-12);
    // Ranks 1 2 4 3 of 1 2 3 4: 1 - 6 x 2 / (4 x 15).
    EXPECT_NEAR(errors_of(cell({{1, 10}, {2, 20}, {4, 30}, {3, 40}})).correlation, 0.8, 1e-12);
    EXPECT_EQ(errors_of(cell({{1, 1}, {2, 2}, {3, 3}})).cells, 0) << "too few rows";
}

TEST(PredictionErrors, RegretsTheChoiceThatIsPredictedFastest) {
    std::vector<Prediction> rows = cell({{1, 11}, {2, 10}, {3, 12}, {4, 13}});
    EXPECT_NEAR(errors_of(rows).regret, 0.1, 1e-12);
    // What is predicted not to fit is not chosen.
    rows[0].fits = false;
    EXPECT_NEAR(errors_of(rows).regret, 0, 1e-12);
    rows[1].fits = false;
    EXPECT_NEAR(errors_of(rows).regret, 0.2, 1e-12);
    // Where nothing is predicted to fit, all are candidates.
    rows[2].fits = rows[3].fits = false;
    EXPECT_NEAR(errors_of(rows).regret, 0.1, 1e-12);
}

TEST(CsvFile, HasQuotedCellsAndComments) {
    const std::string path = ::testing::TempDir() + "/csv_rows.csv";
    std::ofstream(path) << "# a comment\na,b\n\"x, \"\"y\"\"\",2\r\n\n3\n";
    CsvFile file(path);
    EXPECT_TRUE(file.has("a"));
    EXPECT_FALSE(file.has("c"));
    const std::optional<CsvRow> row = file.next();
    ASSERT_TRUE(row);
    EXPECT_EQ((*row)["a"], "x, \"y\"");
    EXPECT_EQ((*row)["b"], "2");
    EXPECT_EQ((*row)["c"], "");
    try {
        (void)file.next();
        ADD_FAILURE();
    } catch (const InputFileError& error) {
        EXPECT_EQ(error.what(), path + ":5: has 1 cells, expected 2");
    }
    EXPECT_THROW(CsvFile("/nowhere.csv"), InputFileError);
}

}  // namespace
}  // namespace vocabpipe::testing
