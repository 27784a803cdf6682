// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/svg_timeline.hpp"

#include "src/schedule/pass_colors.hpp"
#include "src/schedule/place_text.hpp"
#include "src/schedule/same_unit.hpp"
#include "src/schedule/slice_causes.hpp"
#include "src/support/output_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

namespace vocabpipe {

namespace {

// Sizes in units of the picture: pixels unless it is scaled.
constexpr double kLeft = 46;           ///< names of ranks
constexpr double kLeftOfPlaces = 92;   ///< names of ranks with their places in a mesh
constexpr double kLeftOfContext = 20;  ///< what a place among context ranks adds to them
constexpr double kWidth = 954;
constexpr double kRow = 18;
constexpr double kBox = 16;
constexpr double kTitle = 20;
constexpr double kDigit = 6.2;  ///< width of a digit of the font below
constexpr double kFont = 11;
constexpr double kAxis = 30;  ///< ticks, their numbers, the unit

/// For white and dark pages: the picture follows the color scheme of its viewer.
constexpr std::string_view kStyle = R"(<style>
text { fill: #1c2330 } .soft { fill: #5b6678 } .back { fill: #fff } .line { stroke: #d9dde3 }
.b { font-weight: bold } .m { text-anchor: middle } .e { text-anchor: end }
.w { fill: #fff; text-anchor: middle } .k { fill: #1c2330; text-anchor: middle }
@media (prefers-color-scheme: dark) {
  text { fill: #e6eaf1 } .soft { fill: #95a1b5 } .back { fill: #14171d } .line { stroke: #323a47 }
  .w { fill: #fff } .k { fill: #1c2330 }
}
</style>
)";

/// Line of the critical path, visible on passes and on white and dark pages.
constexpr std::string_view kPathLine = R"(fill="none" stroke="#e5262f" stroke-width="2.4")";

/// The smallest 1, 2 or 5 times a power of ten that is not below `least`.
double nice_step(double least) {
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= least * (1 - 1e-9)) return factor * power;
    }
    return 10 * power;
}

/// A unit of times, and how many nanoseconds or ticks it has.
struct TimeUnit {
    double size;
    std::string_view name;
};

TimeUnit unit_of(int ticks_per_unit, double longest) {
    if (ticks_per_unit > 0) return {static_cast<double>(ticks_per_unit), "units"};
    for (const TimeUnit unit : {TimeUnit{1e9, "s"}, TimeUnit{1e6, "ms"}, TimeUnit{1e3, "us"}}) {
        if (longest >= unit.size) return unit;
    }
    return {1, "ns"};
}

/// At most four significant digits, and no zeros at the end.
std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", value >= 1000 ? 6 : 4, value);
    return text;
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    std::string_view view(text);
    if (view.ends_with(".0")) view.remove_suffix(2);
    return std::string(view);
}

/// Titles may contain file names: drops characters that XML does not allow.
std::string svg_text(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '&') {
            result += "&amp;";
        } else if (c == '<') {
            result += "&lt;";
        } else {
            result += c < ' ' || c > '~' ? '?' : c;
        }
    }
    return result;
}

/// `kind`: a class of kStyle, or none. `size`: of the font; 0: that of the picture.
std::string text_at(double x, double y, std::string_view kind, std::string_view text,
                    double size = 0) {
    std::string result = "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\"";
    if (!kind.empty()) result += " class=\"" + std::string(kind) + "\"";
    if (size > 0) result += " font-size=\"" + number(size) + "\"";
    return result + ">" + svg_text(text) + "</text>\n";
}

class Drawing {
public:
    Drawing(std::span<const RecordedRun> runs, const SvgTimelineOptions& options)
        : title_(options.title), critical_path_(options.critical_path) {
        int64_t longest = 1;
        for (const RecordedRun& run : runs) {
            longest = std::max(longest, summarize(run).makespan_ns);
            if (run.mesh.slices() == 1) continue;
            left_ = std::max(left_, kLeftOfPlaces + (run.mesh.context > 1 ? kLeftOfContext : 0));
        }
        longest_ = static_cast<double>(longest);
        scale_ = kWidth / longest_;
        unit_ = unit_of(runs.empty() ? 0 : runs.front().ticks_per_unit, longest_);
        if (!title_.empty()) {
            body_ += text_at(0, 15, "b", title_, 14);
            bottom_ += kTitle + 6;
        }
        for (const RecordedRun& run : runs) draw(run);
        draw_axis();
        draw_costs(runs);
        draw_legend();
    }

    [[nodiscard]] std::string text() const {
        const std::string width = number(left_ + kWidth + 2);
        return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " +
               number(bottom_) + "\" width=\"" + width +
               "\" font-family=\"sans-serif\" font-size=\"" + number(kFont) + "\">\n" +
               (title_.empty() ? "" : "<title>" + svg_text(title_) + "</title>\n") +
               std::string(kStyle) + "<rect width=\"100%\" height=\"100%\" class=\"back\"/>\n" +
               body_ + "</svg>\n";
    }

private:
    void draw(const RecordedRun& run) {
        const TimelineSummary summary = summarize(run);
        body_ += text_at(0, bottom_ + 14, "b", run.title);
        char bubble[32];
        std::snprintf(bubble, sizeof bubble, ", bubble %.1f %%", 100 * summary.bubble);
        body_ += text_at(left_ + kWidth, bottom_ + 14, "e",
                         "makespan " + time_text(summary.makespan_ns) + bubble);
        bottom_ += kTitle;
        const double top = bottom_;
        const size_t lines = body_.size();  // where lines of the axis go, below the boxes
        std::vector<double> rows(static_cast<size_t>(run.ranks));  // of ranks, from above
        auto slice = run.slices.begin();
        for (int rank = 0; rank < run.ranks; ++rank) {
            if (const std::string heading = heading_text(run.mesh, rank); !heading.empty()) {
                body_ += text_at(0, bottom_ + 12, "soft", heading);
                bottom_ += kRow;
            }
            body_ += text_at(0, bottom_ + 12, "", row_text(run.mesh, rank));
            rows[static_cast<size_t>(rank)] = bottom_;
            Row row;
            for (; slice != run.slices.end() && slice->rank == rank; ++slice) {
                if (slice->lane != Lane::compute || slice->end_ns == slice->begin_ns) continue;
                add(row, run, *slice);
            }
            for (size_t i = 0; i < row.boxes.size(); ++i) {
                if (row.boxes[i].empty()) continue;
                const PassColor& kind = kPassColors[i / 2];
                body_ += "<path fill=\"" + std::string(i % 2 == 1 ? kind.later : kind.fill) +
                         "\" d=\"" + row.boxes[i] + "\"/>\n";
                used_[i / 2] = true;
            }
            body_ += row.labels;
            bottom_ += kRow;
        }
        if (critical_path_) draw_critical_path(run, rows);
        std::string grid = "<path class=\"line\" d=\"";
        for (const double x : ticks()) {
            grid += "M" + number(x) + " " + number(top) + "V" + number(bottom_);
        }
        body_.insert(lines, grid + "\"/>\n");
        bottom_ += 8;
    }

    /// Along the lower edge of passes, and from the end of one to the begin of the next.
    void draw_critical_path(const RecordedRun& run, const std::vector<double>& rows) {
        std::string line;
        std::vector<PathPiece> path = critical_path(run, slice_causes(run));
        std::ranges::reverse(path);
        for (const PathPiece& piece : path) {
            const RecordedRun::Slice& slice = run.slices[piece.slice];
            if (slice.lane != Lane::compute || piece.begin_ns == piece.end_ns) continue;
            const double y = rows[static_cast<size_t>(slice.rank)] + kBox - 1;
            const auto at = [&](int64_t time) {
                return number(left_ + static_cast<double>(time) * scale_) + " " + number(y);
            };
            line += (line.empty() ? "M" : "L") + at(piece.begin_ns) + "L" + at(piece.end_ns);
        }
        if (!line.empty()) body_ += "<path " + std::string(kPathLine) + " d=\"" + line + "\"/>\n";
    }

    [[nodiscard]] std::string time_text(int64_t time) const {
        return short_number(static_cast<double>(time) / unit_.size) + " " + std::string(unit_.name);
    }

    /// Times of the numbers on the axis.
    [[nodiscard]] std::vector<double> ticks() const {
        constexpr double kApart = 80;
        std::vector<double> all;
        const double step = nice_step(kApart / scale_ / unit_.size) * unit_.size;
        for (int i = 0; i * step <= longest_ * (1 + 1e-9); ++i) {
            all.push_back(left_ + i * step * scale_);
        }
        return all;
    }

    void draw_axis() {
        const double top = bottom_ - 6;
        std::string line =
            "<path class=\"line\" d=\"M" + number(left_) + " " + number(top) + "h" + number(kWidth);
        std::string numbers;
        double last = 0;
        for (const double x : ticks()) {
            line += "M" + number(x) + " " + number(top) + "v4";
            numbers +=
                text_at(x, top + 15, "soft m", short_number((x - left_) / scale_ / unit_.size));
            last = x;
        }
        body_ += line + "\"/>\n" + numbers;
        // Before the axis if the last number would cover it.
        const bool room = left_ + kWidth - last > 40;
        body_ += text_at(room ? left_ + kWidth : left_ - 12, top + 15, "soft e", unit_.name);
        bottom_ += kAxis - 8;
    }

    /// The costs, of which times are multiples: once if all runs have the same, else for each run.
    void draw_costs(std::span<const RecordedRun> runs) {
        std::vector<std::string> told;
        for (const RecordedRun& run : runs) {
            if (run.costs.empty() || std::ranges::find(told, run.costs) != told.end()) continue;
            told.push_back(run.costs);
            body_ += text_at(
                left_, bottom_ + 8, "soft",
                "costs" + std::string(run.ticks_per_unit > 0 ? " in units: " : ": ") + run.costs);
            bottom_ += kRow;
        }
    }

    /// Boxes by kind, separately for a rank's first stage and its others.
    struct Row {
        std::array<std::string, 2 * kPassColors.size()> boxes;
        std::string labels;
    };

    void add(Row& row, const RecordedRun& run, const RecordedRun::Slice& slice) {
        std::string_view name = run.names[slice.name];
        const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
        const int stage = digits == 0 ? 0 : std::stoi(std::string(name.substr(0, digits)));
        name.remove_prefix(digits);
        const size_t kind = pass_color(name);
        const double x = left_ + static_cast<double>(slice.begin_ns) * scale_;
        const double width = static_cast<double>(slice.end_ns - slice.begin_ns) * scale_;
        const double drawn = std::max(width - 0.6, 0.3);  // a gap between neighbours
        row.boxes[2 * kind + (stage >= run.mesh.pipeline ? 1 : 0)] +=
            "M" + number(x) + " " + number(bottom_) + "h" + number(drawn) + "v" + number(kBox) +
            "h-" + number(drawn) + "z";
        if (slice.number == RecordedRun::kNone) return;
        const std::string label = std::to_string(slice.number);
        // Longer numbers get a smaller font, so that numbers above 9 fit, too.
        const double fits = width / (static_cast<double>(label.size()) * kDigit) * kFont;
        if (fits < 5) return;
        row.labels += text_at(x + width / 2, bottom_ + 12 - std::max(0.0, (kFont - fits) / 3),
                              kPassColors[kind].dark && stage < run.mesh.pipeline ? "w" : "k",
                              label, fits < kFont ? std::floor(2 * fits) / 2 : 0);
    }

    void draw_legend() {
        double x = left_;
        // `shape`: a path without its start, which is the entry's upper left corner.
        const auto draw_entry = [&](const std::string& name, const std::string& attributes,
                                    const std::string& shape) {
            const double width = 34 + 5.6 * static_cast<double>(name.size());
            if (x + width > left_ + kWidth) {
                x = left_;
                bottom_ += kRow;
            }
            body_ += "<path " + attributes + " d=\"M" + number(x) + " " + number(bottom_) + shape +
                     "\"/>\n" + text_at(x + 16, bottom_ + 10, "", name);
            x += width;
        };
        for (size_t i = 0; i < kPassColors.size(); ++i) {
            if (!used_[i]) continue;
            const std::string name = std::string(kPassColors[i].letter) +
                                     (kPassColors[i].letter.empty() ? "" : " ") +
                                     std::string(kPassColors[i].word);
            draw_entry(name, "fill=\"" + std::string(kPassColors[i].fill) + "\"", "h12v12h-12z");
        }
        if (critical_path_) draw_entry("critical path", std::string(kPathLine), "m0 10h12");
        bottom_ += kTitle;
    }

    std::string title_;
    bool critical_path_;
    double longest_ = 1;
    double scale_ = 1;
    TimeUnit unit_{1, "ns"};
    double left_ = kLeft;
    double bottom_ = 0;
    std::string body_;
    std::array<bool, kPassColors.size()> used_{};
};

}  // namespace

std::string svg_timeline(std::span<const RecordedRun> runs, const SvgTimelineOptions& options) {
    require_same_unit(runs);
    return Drawing(runs, options).text();
}

void write_svg_timeline(const std::string& path, std::span<const RecordedRun> runs,
                        const SvgTimelineOptions& options) {
    const std::string picture = svg_timeline(runs, options);
    OutputFile file(path);
    file.write(picture);
    file.publish();
}

}  // namespace vocabpipe
