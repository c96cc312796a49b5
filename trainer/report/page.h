// `megalith report` writes runs as one HTML page that needs no other file and no network. The build embeds its
// parts: page.html, page.css and the scripts, which draw all that the page shows from one JSON.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_js;

// Returns the page of one run, or of several, the best first.
std::string report_page(std::vector<History> runs);

}  // namespace megalith
