// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/svg_timeline.hpp"

#include "src/schedule/place_text.hpp"
#include "src/schedule/same_unit.hpp"
#include "src/support/output_file.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace vocabpipe {

namespace {

// In the picture's units, which are pixels unless it is scaled.
constexpr double kLeft = 46;          ///< names of ranks
constexpr double kLeftOfPlaces = 92;  ///< names of ranks with their places in a mesh
constexpr double kWidth = 954;
constexpr double kRow = 18;
constexpr double kBox = 16;
constexpr double kTitle = 20;
constexpr double kDigit = 6.2;  ///< width of a digit of the font below

/// Colours as in the page (html/draw.js). White text on the dark ones.
struct Kind {
    std::string_view letter;  ///< of a pass; empty: passes of the step
    std::string_view fill;
    bool dark;
};
constexpr std::array<Kind, 10> kKinds{{{"F", "#4878d0", true},
                                       {"B", "#ee854a", false},
                                       {"I", "#f5b05a", false},
                                       {"W", "#6aa84f", true},
                                       {"R", "#c4a07a", false},
                                       {"E", "#34a0a4", true},
                                       {"G", "#7ecbc4", false},
                                       {"S", "#956cc8", true},
                                       {"T", "#d667a3", true},
                                       {"", "#8c613c", true}}};

size_t kind_of(std::string_view letter) {
    const auto* const found = std::find_if(kKinds.begin(), kKinds.end() - 1,
                                           [&](const Kind& k) { return k.letter == letter; });
    return static_cast<size_t>(found - kKinds.begin());
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    std::string_view view(text);
    if (view.ends_with(".0")) view.remove_suffix(2);
    return std::string(view);
}

/// Titles may hold file names: what XML or a reader could stumble over is left out.
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

std::string text_at(double x, double y, std::string_view attributes, std::string_view text) {
    return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\"" + std::string(attributes) + ">" +
           svg_text(text) + "</text>\n";
}

class Drawing {
public:
    explicit Drawing(std::span<const RecordedRun> runs) {
        int64_t longest = 1;
        for (const RecordedRun& run : runs) {
            longest = std::max(longest, summarize(run).makespan_ns);
            if (run.mesh.slices() > 1) left_ = kLeftOfPlaces;
        }
        scale_ = kWidth / static_cast<double>(longest);
        for (const RecordedRun& run : runs) draw(run);
        draw_legend();
    }

    [[nodiscard]] std::string text() const {
        const std::string width = number(left_ + kWidth + 2);
        return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " +
               number(bottom_) + "\" width=\"" + width +
               "\" font-family=\"sans-serif\" font-size=\"11\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
               body_ + "</svg>\n";
    }

private:
    void draw(const RecordedRun& run) {
        body_ += text_at(0, bottom_ + 14, " font-weight=\"bold\"", run.title);
        bottom_ += kTitle;
        auto slice = run.slices.begin();
        for (int rank = 0; rank < run.ranks; ++rank) {
            if (const std::string heading = heading_text(run.mesh, rank); !heading.empty()) {
                body_ += text_at(0, bottom_ + 12, " fill=\"#555\"", heading);
                bottom_ += kRow;
            }
            body_ += text_at(0, bottom_ + 12, "", row_text(run.mesh, rank));
            Row row;
            for (; slice != run.slices.end() && slice->rank == rank; ++slice) {
                if (slice->lane != Lane::compute || slice->end_ns == slice->begin_ns) continue;
                add(row, run, *slice);
            }
            for (size_t i = 0; i < row.boxes.size(); ++i) {
                if (row.boxes[i].empty()) continue;
                body_ += "<path fill=\"" + std::string(kKinds[i / 2].fill) + "\"" +
                         (i % 2 == 1 ? " opacity=\".62\"" : "") + " d=\"" + row.boxes[i] + "\"/>\n";
                used_[i / 2] = true;
            }
            body_ += row.labels;
            bottom_ += kRow;
        }
        bottom_ += 8;
    }

    /// Boxes by kind, and for stages after the first of a rank apart.
    struct Row {
        std::array<std::string, 2 * kKinds.size()> boxes;
        std::string labels;
    };

    void add(Row& row, const RecordedRun& run, const RecordedRun::Slice& slice) {
        std::string_view name = run.names[slice.name];
        const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
        const int stage = digits == 0 ? 0 : std::stoi(std::string(name.substr(0, digits)));
        name.remove_prefix(digits);
        const size_t kind = kind_of(name);
        const double x = left_ + static_cast<double>(slice.begin_ns) * scale_;
        const double width = static_cast<double>(slice.end_ns - slice.begin_ns) * scale_;
        const double drawn = std::max(width - 0.6, 0.3);  // a gap between neighbours
        row.boxes[2 * kind + (stage >= run.mesh.pipeline ? 1 : 0)] +=
            "M" + number(x) + " " + number(bottom_) + "h" + number(drawn) + "v" + number(kBox) +
            "h-" + number(drawn) + "z";
        if (slice.number == RecordedRun::kNone) return;
        const std::string label = std::to_string(slice.number);
        if (static_cast<double>(label.size()) * kDigit > width) return;
        row.labels += text_at(x + width / 2, bottom_ + 12,
                              kKinds[kind].dark && stage < run.mesh.pipeline
                                  ? " text-anchor=\"middle\" fill=\"#fff\""
                                  : " text-anchor=\"middle\"",
                              label);
    }

    void draw_legend() {
        double x = left_;
        for (size_t i = 0; i < kKinds.size(); ++i) {
            if (!used_[i]) continue;
            const std::string name(kKinds[i].letter.empty() ? "end of step" : kKinds[i].letter);
            body_ += "<path fill=\"" + std::string(kKinds[i].fill) + "\" d=\"M" + number(x) + " " +
                     number(bottom_) + "h12v12h-12z\"/>\n" +
                     text_at(x + 16, bottom_ + 10, "", name);
            x += 28 + kDigit * static_cast<double>(name.size());
        }
        bottom_ += kTitle;
    }

    double scale_ = 1;
    double left_ = kLeft;
    double bottom_ = 0;
    std::string body_;
    std::array<bool, kKinds.size()> used_{};
};

}  // namespace

void write_svg_timeline(const std::string& path, std::span<const RecordedRun> runs) {
    require_same_unit(runs);
    const Drawing drawing(runs);
    OutputFile file(path);
    file.write(drawing.text());
    file.publish();
}

}  // namespace vocabpipe
