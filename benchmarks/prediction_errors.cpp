// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/prediction_errors.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace vocabpipe {

namespace {

constexpr size_t kLeastOfCell = 4;  // rows; a correlation of fewer says nothing

/// Between two values by linear interpolation; 0 without values.
double quantile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double at = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

/// Ranks from 0; equal values share the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
    std::vector<double> ranks;
    for (const double value : values) {
        double smaller = 0, equal = 0;
        for (const double other : values) {
            smaller += other < value ? 1 : 0;
            equal += other == value ? 1 : 0;
        }
        ranks.push_back(smaller + (equal - 1) / 2);
    }
    return ranks;
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const std::vector<double> x = ranks_of(a), y = ranks_of(b);
    const double middle = static_cast<double>(x.size() - 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - middle) * (y[i] - middle);
        xx += (x[i] - middle) * (x[i] - middle);
        yy += (y[i] - middle) * (y[i] - middle);
    }
    return xx == 0 || yy == 0 ? 1 : xy / std::sqrt(xx * yy);
}

/// Measured time of the row that is predicted fastest among those predicted to fit, over that of
/// the fastest row, less 1. Where none is predicted to fit, all are candidates.
double regret_of(const std::vector<const Prediction*>& cell) {
    double best = cell.front()->measured;
    const Prediction* chosen = nullptr;
    for (const bool fitting : {true, false}) {
        for (const Prediction* row : cell) {
            best = std::min(best, row->measured);
            if (fitting && !row->fits) continue;
            if (!chosen || row->predicted < chosen->predicted) chosen = row;
        }
        if (chosen) break;
    }
    return chosen->measured / best - 1;
}

double share(int part, int rest) {
    return part + rest == 0 ? 1 : static_cast<double>(part) / static_cast<double>(part + rest);
}

}  // namespace

double PredictionErrors::recall() const {
    return share(found, missed);
}
double PredictionErrors::precision() const {
    return share(found, refused);
}

PredictionErrors errors_of(const std::vector<Prediction>& predictions) {
    PredictionErrors errors;
    std::vector<double> ratios, deviations, memories, correlations, regrets;
    std::map<std::string, std::vector<const Prediction*>> cells;
    for (const Prediction& row : predictions) {
        if (row.measured == 0) {
            ++(row.fits ? errors.missed : errors.found);
            continue;
        }
        ++(row.fits ? errors.kept : errors.refused);
        ratios.push_back(row.predicted / row.measured);
        deviations.push_back(std::abs(ratios.back() - 1));
        if (row.measured_gib > 0) memories.push_back(row.predicted_gib / row.measured_gib);
        cells[row.cell].push_back(&row);
    }
    for (const auto& [name, cell] : cells) {
        if (cell.size() < kLeastOfCell) continue;
        std::vector<double> predicted, measured;
        for (const Prediction* row : cell) {
            predicted.push_back(row->predicted);
            measured.push_back(row->measured);
        }
        correlations.push_back(rank_correlation(predicted, measured));
        regrets.push_back(regret_of(cell));
    }
    errors.rows = static_cast<int>(ratios.size());
    errors.median = quantile(ratios, 0.5);
    errors.error = quantile(deviations, 0.5);
    errors.p10 = quantile(ratios, 0.1);
    errors.p90 = quantile(ratios, 0.9);
    errors.cells = static_cast<int>(correlations.size());
    errors.correlation = mean(correlations);
    errors.regret = mean(regrets);
    errors.memory = quantile(memories, 0.5);
    return errors;
}

}  // namespace vocabpipe
