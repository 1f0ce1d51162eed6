"""The Studio and its parts. Needs the extra ``cmask-lab[lab]``; everything it does has a plain Python way too."""
