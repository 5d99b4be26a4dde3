//! A page on a desk and on a phone, light and dark: nothing of it is cut off, and everything can be pressed. With
//! `TIDEMILL_SCREENSHOTS=DIR` a picture of each is left there.
//!
//! A page is loaded once and then looked at in every way: what is the same for all sizes is not asked for again.

use crate::driver::Browser;
use serde_json::json;
use std::path::PathBuf;

/// Where pictures of the pages go, where somebody wants them.
const SCREENSHOTS_VARIABLE: &str = "TIDEMILL_SCREENSHOTS";

/// Widths and heights: a phone, a small window, and a desk, at which the page is left. Pictures are taken where there
/// is a name.
const SIZES: [(u32, u32, Option<&str>); 3] =
    [(360, 740, Some("narrow")), (500, 900, None), (1_280, 900, Some("wide"))];

/// What of the page lies beyond the window's right edge, and what cannot be pressed: each is scrolled to, and must be
/// what is hit in its middle. Folds are opened one after the other, as a reader would.
const FAULTS: &str = "
    const faults = [];
    const page = document.scrollingElement;
    const name = (one) => one.outerHTML.slice(0, 160);
    const wide = (where) => {
      if (page.scrollWidth > innerWidth) faults.push(`${page.scrollWidth - innerWidth} pixels too wide ${where}`);
    };
    const press = (within) => {
      for (const one of within.querySelectorAll('button, a.button, summary, input, select, textarea')) {
        if (one.type === 'hidden' || !one.checkVisibility()) continue;
        one.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
        const box = one.getBoundingClientRect();
        const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        if (box.left < 0 || box.right > innerWidth + 1 || !one.contains(hit))
          faults.push(`cannot be pressed: ${name(one)}`);
      }
    };
    wide('as it is');
    press(document.body);
    for (const fold of document.querySelectorAll('details:not([open])')) {
      if (!fold.checkVisibility()) continue;
      fold.open = true;
      wide(`with ${name(fold)} open`);
      press(fold);
      fold.open = false;
    }
    scrollTo(0, 0);
    return faults;";

/// Fails where something of the page that is open is cut off, or the browser complains of something.
pub(crate) async fn fits(browser: &Browser, name: &str) {
    for (width, height, size) in SIZES {
        browser.resize(width, height).await;
        for light in ["dark", "light"] {
            browser.darken(light == "dark").await;
            let faults = browser.run(FAULTS).await;
            assert_eq!(faults, json!([]), "{name}, {width} pixels wide, on {}", browser.url().await);
            if let Some(size) = size {
                photograph(browser, &format!("{size}-{light}-{name}")).await;
            }
        }
    }
    browser.is_content().await;
}

/// Leaves a picture of the page where somebody wants one.
pub(crate) async fn photograph(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os(SCREENSHOTS_VARIABLE).map(PathBuf::from) {
        std::fs::create_dir_all(&folder).expect("the folder is made");
        browser.photograph(&folder.join(format!("{name}.webp"))).await;
    }
}
