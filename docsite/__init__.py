"""Documents made from the code: reference pages, man pages, llms.txt, and the site they are part of."""
