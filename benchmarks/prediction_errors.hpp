// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// A published run beside its prediction.
struct Prediction {
    std::string cell;      ///< rows among which somebody would choose
    double predicted = 0;  ///< seconds of a step
    double measured = 0;   ///< seconds; 0: it ran out of memory
    bool fits = true;      ///< whether the prediction says so
    double predicted_gib = 0;
    double measured_gib = 0;  ///< 0: not published
};

/// How well a group of runs is predicted. Times are of runs that ran.
struct PredictionErrors {
    int rows = 0;               ///< that ran
    double median = 0;          ///< predicted / measured
    double error = 0;           ///< median of |predicted / measured - 1|
    double p10 = 0, p90 = 0;    ///< of predicted / measured
    int cells = 0;              ///< with at least four rows that ran
    double correlation = 0;     ///< of ranks (Spearman), mean over cells
    double regret = 0;          ///< measured time of our choice over the best's, less 1; mean
    double memory = 0;          ///< median of predicted / measured
    int found = 0, missed = 0;  ///< rows out of memory that are predicted so, or to fit
    int kept = 0, refused = 0;  ///< rows that ran that are predicted to fit, or not to
    /// Share of the rows that ran out of memory that is found; 1 without such rows.
    [[nodiscard]] double recall() const;
    /// Share of the rows predicted to run out of memory that did; 1 without such rows.
    [[nodiscard]] double precision() const;
};

[[nodiscard]] PredictionErrors errors_of(const std::vector<Prediction>& predictions);

}  // namespace vocabpipe
